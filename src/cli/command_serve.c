/* weir serve: models behind HTTP, until somebody asks it to stop. */
#include "cli/commands.h"
#include "cli/config_print.h"
#include "cli/serve_models.h"
#include "plat/clock.h"
#include "plat/notify.h"
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

enum {
    SILENCE_S = 30,
    STALL_S = 60,
    DRAIN_TICK_MS = 100,
    BACKLOG_BYTES = 1 << 20,
    KEY_FILE_BYTES_MAX = 1 << 20,
};

#define NS_PER_S INT64_C(1000000000)

struct serving {
    const struct command_context *context;
    struct access_rules access;
    struct serve_models models;
    struct server *server;
    int signal_fd, state_fd; /* state_fd: a model is ready, or did not open */
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

static void see_state(void *context, const struct serve_model *model, enum service_state state, const struct err *err)
{
    static const char *const events[] = {[SERVICE_READY] = "ready",
                                         [SERVICE_RESTARTING] = "engine_restart",
                                         [SERVICE_DOWN] = "engine_down",
                                         [SERVICE_PARKED] = "engine_closed",
                                         [SERVICE_FAILED] = "engine_not_opened"};
    struct serving *s = context;
    uint64_t one = 1;
    char line[sizeof err->text + sizeof model->name + 64], name[sizeof model->name + 16] = "";
    const char *event = (size_t)state < sizeof events / sizeof *events ? events[state] : NULL;
    bool is_one_of_many = s->models.n > 1, ends_all = state == SERVICE_FAILED && !is_one_of_many;
    if (is_one_of_many) snprintf(name, sizeof name, " model=\"%s\"", model->name);
    if (event && !ends_all) {
        snprintf(line, sizeof line, "event=%s%s%s%s%s", event, name, err ? " text=\"" : "", err ? err->text : "",
                 err ? "\"" : "");
        say(s, line);
    }
    ssize_t n = write(s->state_fd, &one, sizeof one);
    (void)n; /* an event descriptor that is never read full takes it */
}

static void see_warning(void *context, const struct serve_model *model, const struct err *warning)
{
    (void)model;
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
        .models = s->models.served,
        .n_models = s->models.n,
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

/* Until a signal comes. False: the only model did not open. Of several each is opened when it is asked for. */
static bool wait_for_end(struct serving *s, struct err *err)
{
    const char *notify = s->context->settings->notify_socket;
    bool is_one_of_many = s->models.n > 1;
    if (is_one_of_many) notify_send(notify, "READY=1\nSTATUS=Answering requests");
    for (;;) {
        uint64_t count;
        struct pollfd events[] = {{.fd = s->signal_fd, .events = POLLIN}, {.fd = s->state_fd, .events = POLLIN}};
        if (poll(events, 2, -1) < 0 && errno != EINTR) return err_set(err, ERR_IO, "poll: %s", strerror(errno));
        if (was_signalled(s)) return true;
        if (read(s->state_fd, &count, sizeof count) < 0) continue;
        if (is_one_of_many) continue;
        if (service_state(s->models.models[0].service, err) == SERVICE_FAILED) return false;
        notify_send(notify, "READY=1\nSTATUS=Answering requests");
    }
}

/* Answers that go on may end, for a while; a second signal ends the while. */
static void drain(struct serving *s)
{
    char line[128];
    int64_t left = (int64_t)s->context->settings->drain_time_s * NS_PER_S;
    const int64_t tick = DRAIN_TICK_MS * INT64_C(1000000);
    notify_send(s->context->settings->notify_socket, "STOPPING=1");
    serve_models_close(&s->models);
    server_drain(s->server);
    uint32_t n_open = serve_models_open_requests(&s->models);
    snprintf(line, sizeof line, "event=stopping open_requests=%" PRIu32, n_open);
    say(s, line);
    while (n_open > 0 && left > 0) {
        struct pollfd event = {.fd = s->signal_fd, .events = POLLIN};
        poll(&event, 1, DRAIN_TICK_MS);
        if (was_signalled(s)) break;
        left -= tick;
        n_open = serve_models_open_requests(&s->models);
    }
    uint32_t n = serve_models_stop(&s->models);
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
    tell_profile(s);
    if (!make_access(s, err)) return false;
    if (!serve_models_start(&s->models, err)) return false;
    if (s->models.role != KEEPER_OWNER) return true;
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
    s.models = (struct serve_models){.context = context, .told = &s, .changed = see_state, .warned = see_warning};
    if (context->settings->print_config) {
        config_print(context->out, context->settings, COMMAND_SERVE);
        return EXIT_CODE_DONE;
    }
    pthread_mutex_init(&s.log_lock, NULL);
    bool ok = open_events(&s, &before, &err) && serve(&s, &err);
    serve_models_stop(&s.models);
    server_stop(s.server);
    serve_models_fini(&s.models);
    if (s.signal_fd >= 0) close(s.signal_fd);
    if (s.state_fd >= 0) close(s.state_fd);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_destroy(&s.log_lock);
    if (s.models.child_failed) return EXIT_CODE_FAILED;
    return ok ? EXIT_CODE_DONE : command_fail(context, &err);
}
