/* weir serve: a model behind HTTP, until somebody asks it to stop. */
#include "cli/answer_settings.h"
#include "cli/commands.h"
#include "cli/config_print.h"
#include "cli/library.h"
#include "cli/open_engine.h"
#include "plat/clock.h"
#include "plat/notify.h"
#include "run/engine_child.h"
#include "run/service.h"
#include "serve/server.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    SCORE_LOGIT_ROWS = 32, /* rows of a prompt whose log-probabilities are asked for, in one pass */
    SILENCE_S = 30,
    STALL_S = 60,
    DRAIN_TICK_MS = 100,
    BACKLOG_BYTES = 1 << 20,
    KEY_FILE_BYTES_MAX = 1 << 20,
};

#define NS_PER_S INT64_C(1000000000)

struct serving {
    const struct command_context *context;
    struct config config;
    struct text_model model;
    struct answer_settings answers;
    struct access_rules access;
    char name[256], fingerprint[40];
    struct keeper *keeper; /* NULL unless the engine is isolated */
    enum keeper_role role; /* of this process */
    bool child_failed;
    struct service *service;
    struct server *server;
    int signal_fd, state_fd; /* state_fd: the model is ready, or did not open */
    pthread_mutex_t log_lock;
};

/* --- what is told --- */

/* key=value words behind the time; the lines of several threads do not mix. */
static void say(void *context, const char *line)
{
    struct serving *s = context;
    struct timespec now;
    struct tm utc;
    char when[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &utc);
    pthread_mutex_lock(&s->log_lock);
    fprintf(s->context->log, "time=%s.%03ldZ component=serve %s\n", when, now.tv_nsec / 1000000, line);
    fflush(s->context->log);
    pthread_mutex_unlock(&s->log_lock);
}

static void see_state(void *context, enum service_state state, const struct err *err)
{
    struct serving *s = context;
    uint64_t one = 1;
    char line[sizeof err->text + 64];
    if (state == SERVICE_READY) say(s, "event=ready");
    if (state == SERVICE_RESTARTING || state == SERVICE_DOWN) {
        snprintf(line, sizeof line, "event=%s text=\"%s\"", state == SERVICE_DOWN ? "engine_down" : "engine_restart",
                 err->text);
        say(s, line);
    }
    ssize_t n = write(s->state_fd, &one, sizeof one);
    (void)n; /* an event descriptor that is never read full takes it */
}

static void see_warning(void *context, const struct err *warning)
{
    char line[sizeof warning->text + 64];
    snprintf(line, sizeof line, "level=warning component=engine message=\"%s\"", warning->text);
    say(context, line);
}

/* --- what it needs --- */

static bool check_host(const struct serving *s, struct err *err)
{
    const struct settings *settings = s->context->settings;
    if (!access_is_loopback(settings->host) && s->access.n_keys == 0)
        return err_set(err, ERR_USER,
                       "--host %s can be reached from other machines: give --api-key-file, or listen on 127.0.0.1",
                       settings->host);
    for (size_t i = 0; i < s->access.n_origins; i++)
        if (strcmp(s->access.origins[i], "*") == 0 && s->access.n_keys == 0)
            return err_set(err, ERR_USER, "--cors-origin * lets any web page ask: give --api-key-file too");
    return true;
}

static bool read_keys(struct serving *s, struct err *err)
{
    size_t bytes;
    const char *path = s->context->settings->api_key_file;
    if (!path) return true;
    char *text = file_read_all(s->context->alloc, s->context->fs, path, KEY_FILE_BYTES_MAX, &bytes, err);
    if (!text) return err_context(err, "--api-key-file");
    bool ok = access_add_keys(&s->access, path, text, err);
    memset(text, 0, bytes);
    alloc_put(s->context->alloc, text);
    return ok;
}

static bool make_access(struct serving *s, struct err *err)
{
    const struct settings *settings = s->context->settings;
    snprintf(s->access.bound_host, sizeof s->access.bound_host, "%s", settings->host);
    s->access.hosts = settings->allowed_hosts.text;
    s->access.n_hosts = settings->allowed_hosts.n;
    s->access.origins = settings->cors_origins.text;
    s->access.n_origins = settings->cors_origins.n;
    return read_keys(s, err) && check_host(s, err);
}

/* A seed of the command line is that of every request that has none. */
static bool make_answers(struct serving *s, struct err *err)
{
    const struct text_model *model = &s->model;
    enum sampling_fault fault;
    if (!answer_settings_init(&s->answers, s->context, &model->defaults, model->n_logits, model->n_tokens, err))
        return false;
    const struct sampling_value seed = {.kind = SAMPLING_INTEGER, .integer = (int64_t)s->context->settings->seed};
    return !s->answers.has_seed || sampling_put(&s->answers.sampling, SAMPLING_SEED, "--seed", seed, &fault, err);
}

/* The folder's name, unless there is an alias. */
static void make_name(struct serving *s)
{
    const char *given = s->context->settings->alias, *path = given ? given : s->context->operands[0];
    size_t end = strlen(path);
    while (!given && end > 1 && path[end - 1] == '/') end--;
    size_t start = end;
    while (!given && start > 0 && path[start - 1] != '/') start--;
    if (given) start = 0;
    snprintf(s->name, sizeof s->name, "%.*s", (int)(end - start), path + start);
}

/* Of everything that alters answers: the program, the kernels, the model, its numerics, and how its state is kept. What
 * is not the default of the last two is named behind the hash. */
static void make_fingerprint(struct serving *s, const struct engine_settings *engine)
{
    const char *numerics = numerics_name(engine->numerics), *kv = kv_codec_of(engine->kv_storage)->name;
    bool is_exact = engine->numerics == NUMERICS_EXACT, is_f32 = engine->kv_storage == KV_STORAGE_F32;
    char text[512];
    int n = snprintf(text, sizeof text, "%s %08" PRIx32 " %s %s %s %g %016" PRIx64, version_text(), engine->cpu_mask,
                     s->name, numerics, kv, (double)engine->latent_norm_eps, XXH3_64bits(&s->config, sizeof s->config));
    snprintf(s->fingerprint, sizeof s->fingerprint, "weir-%016" PRIx64 "%s%s%s%s", XXH3_64bits(text, (size_t)n),
             is_exact ? "" : "-", is_exact ? "" : numerics, is_f32 ? "" : "-", is_f32 ? "" : kv);
}

/* From here on there may be three kinds of this process: the one that serves, the keeper, and the engine. */
static bool isolate(struct serving *s, struct service_settings *with, struct err *err)
{
    int fd;
    struct err why = {0};
    if (!keeper_start(&s->keeper, s->context->alloc, &s->role, &fd, err)) return false;
    with->keeper = s->keeper;
    if (s->role != KEEPER_CHILD) return true;
    s->child_failed = !engine_child_run(fd, s->context->alloc, with, &why); /* the one that serves was told why */
    close(fd);
    return true;
}

static bool start_service(struct serving *s, struct err *err)
{
    const struct settings *settings = s->context->settings;
    struct service_settings with = {
        .fs = s->context->fs,
        .model = &s->model,
        .n_waiting_max = (uint32_t)settings->max_queue,
        .decode_stall_ns_max = (int64_t)settings->decode_stall_s * NS_PER_S,
        .ssd_dir = settings->ssd_cache,
        .ssd_bytes_max = settings->ssd_cache_max_bytes,
        .demote_idle_ns = (int64_t)settings->demote_idle_s * NS_PER_S,
        .ws = write_system_real(),
        .clock = clock_real(),
        .context = s,
        .changed = see_state,
        .warned = see_warning,
    };
    if (!engine_settings_from(&with.engine, s->context, err)) return false;
    with.engine.n_sequences = (uint32_t)settings->batch;
    with.engine.logit_rows = (uint32_t)settings->batch + SCORE_LOGIT_ROWS;
    with.engine.streamed.usage_folder = library_usage_folder(s->context);
    with.engine.streamed.usage_import = settings->usage_import;
    make_fingerprint(s, &with.engine);
    if (settings->isolate && !isolate(s, &with, err)) return false;
    return s->role != KEEPER_OWNER || service_new(&s->service, s->context->alloc, &with, err);
}

static bool start_server(struct serving *s, struct err *err)
{
    const struct settings *settings = s->context->settings;
    const struct server_settings with = {
        .host = settings->host,
        .port = (uint16_t)settings->port,
        .n_connections_max = (unsigned)settings->max_connections,
        .n_per_address_max = (unsigned)settings->max_per_client,
        .body_bytes_max = settings->max_body_bytes,
        .queue_ns_max = (int64_t)settings->queue_timeout_s * NS_PER_S,
        .silence_s = SILENCE_S,
        .stall_s = STALL_S,
        .backlog_bytes_max = BACKLOG_BYTES,
        .keep_alive_ns = (int64_t)settings->keep_alive_s * NS_PER_S,
        .whole_keep_alive_ns = (int64_t)settings->keep_alive_whole_s * NS_PER_S,
        .both_reasoning_fields = settings->reasoning_field > 0,
        .access = &s->access,
        .model = &s->model,
        .service = s->service,
        .model_name = s->name,
        .fingerprint = s->fingerprint,
        .numerics = numerics_name((enum numerics)settings->numerics),
        .kv = kv_codec_of((enum kv_storage)settings->kv)->name,
        .sampling = &s->answers.sampling,
        .chat = s->answers.chat,
        .context_tokens = (uint32_t)settings->context_length,
        .is_isolated = s->keeper != NULL,
        .strict_model = settings->strict_model,
        .strict_fields = settings->strict_fields,
        .clock = clock_real(),
        .context = s,
        .log = say,
    };
    if (!server_start(&s->server, s->context->alloc, &with, err)) return false;
    fprintf(s->context->out, "http://%s:%u\n", server_address(s->server), server_port(s->server));
    return fflush(s->context->out) == 0 || err_set(err, ERR_IO, "cannot write the output: %s", strerror(errno));
}

/* --- from start to stop --- */

/* Signals come through a descriptor, to this thread alone. The sets that were there before are put back at the end. */
static bool open_events(struct serving *s, sigset_t *before, struct err *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGPIPE); /* a closed socket is an error of a write, not of the process */
    pthread_sigmask(SIG_BLOCK, &set, before);
    sigdelset(&set, SIGPIPE);
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    s->state_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->signal_fd >= 0 && s->state_fd >= 0) return true;
    return err_set(err, ERR_IO, "cannot wait for signals: %s", strerror(errno));
}

static bool was_signalled(struct serving *s)
{
    struct signalfd_siginfo info;
    return read(s->signal_fd, &info, sizeof info) == (ssize_t)sizeof info;
}

/* Until a signal comes. False: the model did not open. */
static bool wait_for_end(struct serving *s, struct err *err)
{
    const char *notify = s->context->settings->notify_socket;
    for (;;) {
        uint64_t count;
        struct pollfd events[] = {{.fd = s->signal_fd, .events = POLLIN}, {.fd = s->state_fd, .events = POLLIN}};
        if (poll(events, 2, -1) < 0 && errno != EINTR) return err_set(err, ERR_IO, "poll: %s", strerror(errno));
        if (was_signalled(s)) return true;
        if (read(s->state_fd, &count, sizeof count) < 0) continue;
        if (service_state(s->service, err) == SERVICE_FAILED) return false;
        notify_send(notify, "READY=1\nSTATUS=Answering requests");
    }
}

/* Answers that go on may end, for a while; a second signal ends the while. */
static void drain(struct serving *s)
{
    char line[128];
    struct service_stats stats;
    int64_t left = (int64_t)s->context->settings->drain_time_s * NS_PER_S;
    const int64_t tick = DRAIN_TICK_MS * INT64_C(1000000);
    notify_send(s->context->settings->notify_socket, "STOPPING=1");
    service_close(s->service);
    server_drain(s->server);
    service_stats(s->service, &stats);
    snprintf(line, sizeof line, "event=stopping open_requests=%" PRIu32, stats.n_open);
    say(s, line);
    while (stats.n_open > 0 && left > 0) {
        struct pollfd event = {.fd = s->signal_fd, .events = POLLIN};
        poll(&event, 1, DRAIN_TICK_MS);
        if (was_signalled(s)) break;
        left -= tick;
        service_stats(s->service, &stats);
    }
    uint32_t n = service_stop(s->service, 0);
    if (n > 0) {
        snprintf(line, sizeof line, "event=cancelled requests=%" PRIu32, n);
        say(s, line);
    }
}

static void tell_profile(const struct serving *s)
{
    const struct settings *settings = s->context->settings;
    if (!settings->profile_path) return;
    fprintf(s->context->log, "weir: from the profile %s (made by weir tune): ", settings->profile_path);
    config_print_profile(s->context->log, settings);
    fprintf(s->context->log, "\n");
}

static bool serve(struct serving *s, struct err *err)
{
    const char *dir = s->context->operands[0];
    tell_profile(s);
    if (!make_access(s, err)) return false;
    if (!config_read(&s->config, s->context->alloc, s->context->fs, dir, err)) return false;
    if (!text_model_open(&s->model, s->context->alloc, s->context->fs, dir, &s->config, err)) return false;
    if (!make_answers(s, err)) return false;
    make_name(s);
    if (!start_service(s, err)) return false;
    if (s->role != KEEPER_OWNER) return true;
    if (!start_server(s, err)) return false;
    if (!wait_for_end(s, err)) return false;
    drain(s);
    return true;
}

int command_serve(struct command_context *context)
{
    struct err err = {0};
    sigset_t before;
    struct serving s = {.context = context, .signal_fd = -1, .state_fd = -1};
    if (context->settings->print_config) {
        config_print(context->out, context->settings, COMMAND_SERVE);
        return EXIT_CODE_DONE;
    }
    pthread_mutex_init(&s.log_lock, NULL);
    bool ok = open_events(&s, &before, &err) && serve(&s, &err);
    if (s.service) service_stop(s.service, 0);
    server_stop(s.server);
    service_free(s.service);
    keeper_free(s.keeper);
    text_model_close(&s.model);
    if (s.signal_fd >= 0) close(s.signal_fd);
    if (s.state_fd >= 0) close(s.state_fd);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_destroy(&s.log_lock);
    if (s.child_failed) return EXIT_CODE_FAILED;
    return ok ? EXIT_CODE_DONE : command_fail(context, &err);
}
