#include "support/demo_server.h"

#include "support/check.h"

#include <pthread.h>
#include <stdlib.h>

#define DIR "models/demo"

static void keep_log(void *context, const char *line)
{
    struct demo_server *demo = context;
    size_t n = strlen(line);
    pthread_mutex_lock(&demo->log_lock);
    demo->log = realloc(demo->log, demo->n_log + n + 2);
    memcpy(demo->log + demo->n_log, line, n);
    demo->n_log += n;
    memcpy(demo->log + demo->n_log++, "\n", 2);
    pthread_mutex_unlock(&demo->log_lock);
}

void demo_server_init(struct demo_server *demo)
{
    demo_server_init_at(demo, DIR);
}

void demo_server_init_at(struct demo_server *demo, const char *dir)
{
    struct err err = {0};
    *demo = (struct demo_server){0};
    pthread_mutex_init(&demo->log_lock, NULL);
    if (!config_read(&demo->config, &demo->alloc, file_system_real(), dir, &err)) fail_msg("%s", err.text);
    if (!text_model_open(&demo->model, &demo->alloc, file_system_real(), dir, &demo->config, &err))
        fail_msg("%s", err.text);
    demo->sampling = demo->model.defaults;
    demo->sampling.temperature = 0;
    demo->sampling.max_tokens = 64;
    demo->service_settings = (struct service_settings){
        .engine = engine_settings_default(dir),
        .fs = file_system_real(),
        .model = &demo->model,
        .n_waiting_max = 64,
        .decode_stall_ns_max = INT64_C(1000000000),
        .clock = clock_real(),
    };
    demo->service_settings.engine.n_sequences = 8;
    demo->service_settings.engine.logit_rows = 40;
    demo->service_settings.engine.n_threads = 1;
    demo->service_settings.engine.pass_rows = 64; /* a pass is called off between its layers, and sanitizers are slow */
    demo->served = (struct served_model){.name = "demo",
                                         .fingerprint = "weir-test",
                                         .numerics = "exact",
                                         .kv = "f32",
                                         .text = &demo->model,
                                         .sampling = &demo->sampling,
                                         .context_tokens = 4096};
    demo->settings = (struct server_settings){
        .host = "127.0.0.1",
        .n_connections_max = 256,
        .body_bytes_max = 1 << 20,
        .queue_ns_max = INT64_C(60000000000),
        .silence_s = 30,
        .stall_s = 60,
        .keep_alive_ns = INT64_C(10000000000),
        .backlog_bytes_max = 1 << 20,
        .access = &demo->access,
        .models = &demo->served,
        .n_models = 1,
        .clock = clock_real(),
        .context = demo,
        .log = keep_log,
    };
    snprintf(demo->access.bound_host, sizeof demo->access.bound_host, "127.0.0.1");
}

static int64_t now_ms(void)
{
    return clock_now_ns(clock_real()) / 1000000;
}

void demo_server_start(struct demo_server *demo)
{
    struct err err = {0};
    if (!service_new(&demo->service, &demo->alloc, &demo->service_settings, &err)) fail_msg("%s", err.text);
    demo->served.service = demo->service;
    if (!server_start(&demo->server, &demo->alloc, &demo->settings, &err)) fail_msg("%s", err.text);
    demo->port = server_port(demo->server);
    int64_t until = now_ms() + 60000;
    while (service_state(demo->service, &err) == SERVICE_LOADING && now_ms() < until)
        clock_sleep_ns(clock_real(), 1000000);
    if (service_state(demo->service, &err) != SERVICE_READY) fail_msg("the model is not ready: %s", err.text);
}

void demo_server_stop(struct demo_server *demo)
{
    if (demo->service) {
        service_close(demo->service);
        server_drain(demo->server);
        service_stop(demo->service, 0);
        server_stop(demo->server);
        service_free(demo->service);
    }
    text_model_close(&demo->model);
    free(demo->log);
    pthread_mutex_destroy(&demo->log_lock);
    assert_int_equal(demo->alloc.live, 0);
}

int demo_server_wait_idle(struct demo_server *demo, int ms)
{
    struct service_stats stats;
    int64_t start = now_ms();
    for (;;) {
        service_stats(demo->service, &stats);
        int waited = (int)(now_ms() - start);
        if (stats.n_open == 0) return waited;
        if (waited > ms) fail_msg("%u requests are still open after %d ms", stats.n_open, waited);
        clock_sleep_ns(clock_real(), 1000000);
    }
}
