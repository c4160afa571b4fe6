/* One tokenizer, many threads: each with an encoder of its own, all with the same answers. */
#include "support/check.h"
#include "support/random_text.h"
#include "support/tokenizers.h"
#include <pthread.h>

enum { THREADS = 4, TEXTS = 200 };

struct worker {
    pthread_t thread;
    const struct tokenizer *tokenizer;
    struct alloc alloc;
    uint64_t digest;
    bool failed;
};

/* The same texts in every thread: a digest of their ids and of what they decode to. */
static void *work(void *context)
{
    struct worker *worker = context;
    struct random random = {99};
    struct err err = {0};
    struct token_list ids;
    struct buf out;
    struct encoder *encoder = encoder_new(&worker->alloc, worker->tokenizer, NULL, &err);
    worker->failed = !encoder;
    token_list_init(&ids, &worker->alloc, 1 << 16);
    buf_init(&out, &worker->alloc, 1 << 16);
    for (int i = 0; i < TEXTS && !worker->failed; i++) {
        char text[500];
        size_t bytes = random_text(&random, text, sizeof text);
        ids.n = 0;
        buf_clear(&out);
        worker->failed = !encoder_encode(encoder, text, bytes, ENCODE_ALL, &ids, &err) ||
                         !detokenizer_decode(worker->tokenizer, ids.ids, ids.n, false, &out, &err);
        for (size_t k = 0; k < ids.n; k++) worker->digest = worker->digest * 31 + ids.ids[k];
        for (size_t k = 0; k < out.bytes; k++) worker->digest = worker->digest * 31 + (unsigned char)out.data[k];
    }
    token_list_fini(&ids);
    buf_fini(&out);
    encoder_free(encoder);
    return NULL;
}

static void threads_share_a_tokenizer(void **state)
{
    (void)state;
    struct alloc heap = {0};
    struct worker workers[THREADS] = {0};
    struct tokenizer *tokenizer = tokenizer_fixture(&heap, TOKENIZER_MERGE);
    struct worker alone = {.tokenizer = tokenizer};
    work(&alone);
    assert_false(alone.failed);
    for (int i = 0; i < THREADS; i++) {
        workers[i].tokenizer = tokenizer;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_false(workers[i].failed);
        assert_true(workers[i].digest == alone.digest);
        assert_int_equal(workers[i].alloc.live, 0);
    }
    tokenizer_free(tokenizer);
    assert_int_equal(heap.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_share_a_tokenizer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
