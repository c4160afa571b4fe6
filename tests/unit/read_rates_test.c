/* Rates come out of real reads of a file that is large enough, and nothing is made up for one that is not. */
#include "resid/read_rates.h"
#include "support/check.h"
#include "support/temp_folder.h"

#include <unistd.h>

static void measure(const char *path, uint64_t bytes, struct read_rates *rates)
{
    struct alloc alloc = {0};
    struct err err = {0};
    struct shard shard = {0};
    struct catalogue catalogue = {.shards = &shard, .n_shards = 1};
    struct reader *reader;
    struct reader_settings settings = {.depth = 8, .requests_max = 16, .files_max = 2};
    put_file(path, "", 0);
    assert_int_equal(truncate(path, (off_t)bytes), 0); /* a hole: fast to make, read like any other file */
    assert_true(file_open(&shard.file, &alloc, file_system_real(), path, &err));
    assert_true(reader_new_real(&reader, &alloc, &settings, 2, &err));
    if (!read_rates_measure(rates, &alloc, &catalogue, reader, clock_real(), &err)) fail_msg("%s", err.text);
    assert_int_equal(reader_outstanding(reader), 0);
    reader_free(reader);
    file_close(&shard.file);
    assert_int_equal(alloc.live, 0);
}

static void rates_are_measured(void **state)
{
    (void)state;
    struct temp_folder folder;
    struct read_rates rates;
    temp_folder_make(&folder);
    measure(temp_path(&folder, "small"), 1 << 20, &rates);
    assert_int_equal(rates.buffered_bytes_per_s, 0);
    assert_int_equal(rates.direct_bytes_per_s, 0);
    assert_int_equal(rates.bytes_read, 0);
    measure(temp_path(&folder, "large"), UINT64_C(200) << 20, &rates);
    printf("buffered %.2f GB/s, direct %.2f GB/s, %d MB read\n", (double)rates.buffered_bytes_per_s / 1e9,
           (double)rates.direct_bytes_per_s / 1e9, (int)(rates.bytes_read / 1000000));
    assert_true(rates.buffered_bytes_per_s > 1000000);
    assert_true(rates.bytes_read >= UINT64_C(64) << 20);
    temp_folder_remove(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rates_are_measured)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
