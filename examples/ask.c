/* usage: ask MODEL QUESTION
 * Asks one question and prints the answer. The smallest program that uses libweir:
 *
 *   cc ask.c -o ask $(pkg-config --cflags --libs weir) */
#include <stdio.h>
#include <weir/weir.h>

static int print_text(void *context, const struct weir_event *event)
{
    (void)context;
    if (event->kind == WEIR_EVENT_TEXT) fwrite(event->text, 1, event->bytes, stdout);
    return fflush(stdout); /* not 0, which ends the answer, when nobody reads any more */
}

/* One question on an engine that is open. */
static enum weir_status ask(struct weir_session *session, const struct weir_prompt *prompt, struct weir_model *model,
                            struct weir_error *error)
{
    struct weir_request request;
    struct weir_result result = {.size = sizeof result};
    if (weir_request_init(&request, sizeof request, model, error) != WEIR_OK) return error->status;
    request.event = print_text;
    request.temperature = 0; /* the same answer every time */
    if (weir_generate(session, prompt, &request, &result, error) != WEIR_OK) return error->status;
    putchar('\n');
    fprintf(stderr, "%u tokens read, %u written, ended by %s\n", (unsigned)(result.n_prompt - result.n_cached),
            (unsigned)result.n_generated, weir_reason_name(result.reason));
    return WEIR_OK;
}

int main(int argc, char **argv)
{
    struct weir_error error = {WEIR_OK, ""};
    struct weir_model *model = NULL;
    struct weir_prompt *prompt = NULL;
    struct weir_engine *engine = NULL;
    struct weir_session *session = NULL;
    if (argc != 3) {
        fprintf(stderr, "usage: ask MODEL QUESTION\n");
        return 2;
    }
    const struct weir_message question = {.role = "user", .text = argv[2], .bytes = WEIR_WHOLE};

    if (weir_model_open(&model, argv[1], &error) != WEIR_OK) goto out;
    if (weir_prompt_of_messages(&prompt, model, &question, 1, NULL, &error) != WEIR_OK) goto out;
    if (weir_engine_open(&engine, model, NULL, &error) != WEIR_OK) goto out;
    if (weir_session_new(&session, engine, &error) != WEIR_OK) goto out;
    ask(session, prompt, model, &error);
out:
    if (error.status != WEIR_OK) fprintf(stderr, "ask: %s\n", error.text);
    weir_session_free(session, NULL);
    weir_engine_close(engine, NULL);
    weir_prompt_free(prompt);
    weir_model_close(model, NULL);
    return error.status != WEIR_OK;
}
