#include "cli/typed_lines.h"

#include "cli/folders.h"
#include "base/utf8.h"
#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <limits.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

enum { HISTORY_LINES_MAX = 1000, INPUT_BYTES_MAX = 16 << 20, PASTE_CHARACTERS_MAX = 1 << 20 };

#define PASTE_ON "\033[?2004h" /* the terminal brackets what is pasted, so that its line ends end no input */
#define PASTE_OFF "\033[?2004l"

struct typed_lines {
    struct alloc *alloc;
    struct typed_lines_setup setup;
    struct buf line; /* the one in hand, as it came */
    EditLine *edit;  /* NULL: no terminal */
    History *history;
    char *history_path;  /* NULL: not kept */
    const char *prompt;  /* "> ", or "... " behind a backslash */
    bool was_taken_back; /* Ctrl-C */
};

static char *prompt_of(EditLine *edit)
{
    struct typed_lines *lines = NULL;
    el_get(edit, EL_CLIENTDATA, &lines);
    return (char *)lines->prompt;
}

/* Ctrl-C: the line ends, and is no input. */
static unsigned char take_back(EditLine *edit, int key)
{
    struct typed_lines *lines = NULL;
    (void)key;
    el_get(edit, EL_CLIENTDATA, &lines);
    lines->was_taken_back = true;
    return CC_NEWLINE;
}

/* Everything up to the closing bracket goes into the line as it is, but for carriage returns. */
static unsigned char paste(EditLine *edit, int key)
{
    static const wchar_t end[] = L"\033[201~";
    wchar_t text[2] = {0};
    size_t matched = 0;
    (void)key;
    for (size_t n = 0; n < PASTE_CHARACTERS_MAX && end[matched]; n++) {
        if (el_wgetc(edit, text) < 1) return CC_EOF;
        if (*text == end[matched]) {
            matched++;
            continue;
        }
        matched = *text == end[0]; /* an escape that closes nothing is dropped: it could only control the terminal */
        if (*text == L'\r') *text = L'\n';
        if (!matched && el_winsertstr(edit, text) != 0) return CC_ERROR;
    }
    return CC_REFRESH;
}

static bool open_history(struct typed_lines *lines, struct err *err)
{
    HistEvent event;
    struct buf path;
    lines->history = history_init();
    if (!lines->history) return err_set(err, ERR_NOMEM, "no memory for the history");
    history(lines->history, &event, H_SETSIZE, HISTORY_LINES_MAX);
    history(lines->history, &event, H_SETUNIQUE, 1);
    el_set(lines->edit, EL_HIST, history, lines->history);
    if (!lines->setup.state_folder) return true;

    buf_init(&path, lines->alloc, 1 << 16);
    bool ok = buf_printf(&path, err, "%s/chat_history", lines->setup.state_folder);
    if (ok) lines->history_path = buf_take(&path);
    buf_fini(&path);
    if (!ok) return false;
    folders_make(lines->history_path);
    history(lines->history, &event, H_LOAD, lines->history_path); /* a first time has none */
    return true;
}

static bool open_editor(struct typed_lines *lines, struct err *err)
{
    setlocale(LC_CTYPE, "C.UTF-8"); /* libedit decodes what is typed by it */
    lines->edit = el_init("weir", lines->setup.in, lines->setup.out, lines->setup.log);
    if (!lines->edit) return err_set(err, ERR_NOMEM, "no memory for line editing");
    el_set(lines->edit, EL_CLIENTDATA, lines);
    el_set(lines->edit, EL_PROMPT, prompt_of);
    el_set(lines->edit, EL_EDITOR, "emacs");
    el_set(lines->edit, EL_SETTY, "-d", "-isig", NULL); /* Ctrl-C is a key here, and no signal */
    /* Wide, because the narrow call copies its texts and never gives the copies back. */
    el_wset(lines->edit, EL_ADDFN, L"weir-take-back", L"take the line back", take_back);
    el_wset(lines->edit, EL_ADDFN, L"weir-paste", L"insert what is pasted", paste);
    el_source(lines->edit, NULL); /* the user's own ~/.editrc */
    el_set(lines->edit, EL_BIND, "^C", "weir-take-back", NULL);
    el_set(lines->edit, EL_BIND, "\\e[200~", "weir-paste", NULL);
    return open_history(lines, err);
}

bool typed_lines_new(struct typed_lines **lines, struct alloc *alloc, const struct typed_lines_setup *setup,
                     struct err *err)
{
    struct typed_lines *l = alloc_get(alloc, sizeof *l, err);
    if (!l) return false;
    l->alloc = alloc;
    l->setup = *setup;
    buf_init(&l->line, alloc, INPUT_BYTES_MAX);
    if (setup->is_terminal && !open_editor(l, err)) goto fail;
    *lines = l;
    return true;
fail:
    typed_lines_free(l);
    return false;
}

void typed_lines_free(struct typed_lines *lines)
{
    if (!lines) return;
    if (lines->edit) el_end(lines->edit);
    if (lines->history) history_end(lines->history);
    alloc_put(lines->alloc, lines->history_path);
    buf_fini(&lines->line);
    alloc_put(lines->alloc, lines);
}

/* One line into lines->line, with its end if it has one. */
static bool edit_line(struct typed_lines *lines, enum typed *typed, struct err *err)
{
    int n = 0;
    lines->was_taken_back = false;
    fputs(PASTE_ON, lines->setup.out);
    fflush(lines->setup.out);
    const char *text = el_gets(lines->edit, &n);
    fputs(PASTE_OFF, lines->setup.out);
    if (lines->was_taken_back) fputs("^C\n", lines->setup.out);
    bool has_ended = !lines->was_taken_back && (!text || n <= 0); /* Ctrl-D, or the terminal is gone */
    if (has_ended) fputc('\n', lines->setup.out);
    fflush(lines->setup.out);
    *typed = lines->was_taken_back ? TYPED_NOTHING : has_ended ? TYPED_END : TYPED_LINE;
    return *typed != TYPED_LINE || buf_add(&lines->line, text, (size_t)n, err);
}

static bool read_line(struct typed_lines *lines, enum typed *typed, struct err *err)
{
    int c = 0;
    while (c != '\n' && (c = getc_unlocked(lines->setup.in)) != EOF)
        if (!buf_add_char(&lines->line, (char)c, err)) return err_context(err, "standard input");
    *typed = lines->line.bytes ? TYPED_LINE : TYPED_END;
    return !ferror(lines->setup.in) || err_set(err, ERR_IO, "standard input: %s", strerror(errno));
}

/* Takes the end of the line off; true when a backslash in front of it asks for another line. */
static bool goes_on(struct buf *line)
{
    if (line->bytes == 0 || line->data[line->bytes - 1] != '\n') return false;
    line->data[--line->bytes] = 0;
    if (line->bytes && line->data[line->bytes - 1] == '\r') line->data[--line->bytes] = 0;
    if (line->bytes == 0 || line->data[line->bytes - 1] != '\\') return false;
    line->data[line->bytes - 1] = '\n';
    return true;
}

/* Into a file of its owner alone. */
static bool write_history(struct typed_lines *lines, int descriptor)
{
    HistEvent event;
    FILE *file = fdopen(descriptor, "w");
    if (!file) {
        close(descriptor);
        return false;
    }
    bool ok = history(lines->history, &event, H_SAVE_FP, file) >= 0 && fflush(file) == 0 && !ferror(file) &&
              fsync(descriptor) == 0;
    return fclose(file) == 0 && ok;
}

/* Whole or not at all: a disk that is full, or the end of the program, leaves the history of before. */
static bool save_history(struct typed_lines *lines)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s.XXXXXX", lines->history_path) >= (int)sizeof path) return false;
    int descriptor = mkostemp(path, O_CLOEXEC);
    if (descriptor < 0) return false;
    if (write_history(lines, descriptor) && rename(path, lines->history_path) == 0) return true;
    unlink(path);
    return false;
}

static void remember(struct typed_lines *lines, const struct buf *text)
{
    HistEvent event;
    if (!lines->history || text->bytes == 0 || strspn(text->data, " \t\n") == text->bytes) return;
    history(lines->history, &event, H_ENTER, text->data);
    if (!lines->history_path || save_history(lines)) return;
    fprintf(lines->setup.log, "weir: what you type is not remembered: cannot write %s\n", lines->history_path);
    alloc_put(lines->alloc, lines->history_path); /* told once */
    lines->history_path = NULL;
}

bool typed_lines_read(struct typed_lines *lines, struct buf *out, enum typed *typed, struct err *err)
{
    struct utf8_stream stream = {0};
    bool has_more = false, has_begun = false;
    buf_clear(out);
    do {
        lines->prompt = has_begun ? "... " : "> ";
        buf_clear(&lines->line);
        if (!(lines->edit ? edit_line : read_line)(lines, typed, err)) return false;
        if (*typed == TYPED_END && has_begun) *typed = TYPED_LINE; /* the input ends behind a backslash */
        if (*typed != TYPED_LINE) return true;
        has_begun = true;
        has_more = goes_on(&lines->line);
        if (!utf8_stream_add(&stream, out, lines->line.data, lines->line.bytes, err)) return false;
    } while (has_more);
    if (!utf8_stream_end(&stream, out, err)) return false;
    remember(lines, out);
    return true;
}
