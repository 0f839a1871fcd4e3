/* An application in C: everything that diecut.h offers, against a server or an embedded device.
 * usage: program embedded | program SOCKET VSSD */
#include <diecut.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                    \
    do {                                                                                                    \
        if (!(condition)) {                                                                                 \
            fprintf(stderr, "program.c:%d: %s; last failure: %s\n", __LINE__, #condition, diecut_error_text()); \
            exit(1);                                                                                        \
        }                                                                                                   \
    } while (0)
#define OK(call) CHECK((call) == DIECUT_OK)

static const char *socket_path, *vssd;
static diecut_embedded *embedded;
static diecut_shape shape;

static diecut_client *attach(void) {
    diecut_client *client = NULL;
    int code;
    do {
        code = embedded ? diecut_embedded_attach(embedded, &client) : diecut_attach(socket_path, vssd, &client);
    } while (code == DIECUT_HELD);
    OK(code);
    OK(diecut_get_shape(client, &shape, sizeof shape));
    return client;
}

static unsigned char *content(unsigned seed, size_t length) {
    unsigned char *bytes = malloc(length);
    CHECK(bytes != NULL);
    for (size_t at = 0; at < length; at++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[at] = (unsigned char)(seed >> 24);
    }
    return bytes;
}

static void expect(diecut_client *client, diecut_block block, uint64_t offset, unsigned seed, size_t length) {
    unsigned char *written = content(seed, length), *read = malloc(length);
    CHECK(read != NULL);
    OK(diecut_read(client, block, offset, read, length));
    CHECK(memcmp(written, read, length) == 0);
    free(written);
    free(read);
}

struct task {
    diecut_client *client;
    uint32_t unit;
};

static void *work(void *argument) {
    struct task *task = argument;
    size_t unit = shape.append_unit_bytes;
    for (unsigned round = 0; round < 5; round++) {
        diecut_block block;
        OK(diecut_allocate(task->client, task->unit, round, &block));
        CHECK(block.unit == task->unit);
        for (unsigned at = 0; at < 4; at++) {
            unsigned char *bytes = content(100 * task->unit + at, unit);
            uint64_t offset;
            OK(diecut_append(task->client, block, bytes, unit, &offset));
            CHECK(offset == at * unit);
            free(bytes);
        }
        for (unsigned at = 0; at < 4; at++)
            expect(task->client, block, at * unit, 100 * task->unit + at, unit);
        OK(diecut_free(task->client, block));
    }
    /* Texts of failures belong to threads. */
    CHECK(strcmp(diecut_error_text(), "") == 0);
    diecut_block nowhere;
    CHECK(diecut_allocate(task->client, 65536, 0, &nowhere) == DIECUT_INVALID);
    CHECK(strcmp(diecut_error_text(), "there is no such unit") == 0);
    return NULL;
}

static void wrong_arguments(diecut_client *client) {
    diecut_client *other = NULL;
    diecut_block block = {0, 0, 0}, odd = {0, 1, 0};
    char byte;
    uint64_t offset;
    size_t count;
    CHECK(diecut_attach(NULL, "x", &other) == DIECUT_INVALID);
    CHECK(diecut_attach("x", "x", NULL) == DIECUT_INVALID);
    CHECK(diecut_attach("/nowhere/blocks.sock", "x", &other) == DIECUT_SYSTEM);
    CHECK(strstr(diecut_error_text(), "cannot attach") != NULL);
    CHECK(diecut_attach("/", "\xff", &other) == DIECUT_INVALID);
    CHECK(diecut_get_shape(NULL, &shape, sizeof shape) == DIECUT_INVALID);
    CHECK(diecut_get_shape(client, NULL, 8) == DIECUT_INVALID);
    CHECK(diecut_get_shape(client, &shape, sizeof shape + 8) == DIECUT_INVALID);
    CHECK(diecut_held_blocks(client, NULL, 3, &count) == DIECUT_INVALID);
    CHECK(diecut_held_blocks(client, NULL, 0, NULL) == DIECUT_INVALID);
    CHECK(diecut_allocate(client, 0, 256, &block) == DIECUT_INVALID);
    CHECK(diecut_allocate(client, shape.units, 0, &block) == DIECUT_INVALID);
    CHECK(diecut_allocate(client, 0, 0, NULL) == DIECUT_INVALID);
    CHECK(diecut_append(client, odd, &byte, 1, &offset) == DIECUT_INVALID);
    CHECK(diecut_append(client, block, NULL, 4096, &offset) == DIECUT_INVALID);
    CHECK(diecut_append(client, block, NULL, 0, &offset) == DIECUT_INVALID);
    CHECK(diecut_read(client, block, 0, NULL, 4096) == DIECUT_INVALID);
    CHECK(diecut_read(client, block, 1, &byte, 1) == DIECUT_INVALID);
    CHECK(diecut_begin_read(client, block, 0, 4096, NULL) == DIECUT_INVALID);
    CHECK(diecut_finish_read(NULL, &byte, 0) == DIECUT_INVALID);
    CHECK(diecut_finish_append(NULL, &offset) == DIECUT_INVALID);
    CHECK(diecut_sync(NULL) == DIECUT_INVALID);
    CHECK(diecut_poll(NULL) == 1);
    CHECK(strcmp(diecut_code_text(DIECUT_BLOCK_FULL), diecut_code_text(-1)) != 0);
    diecut_forget(NULL);
    diecut_detach(NULL);
    diecut_embedded_destroy(NULL);
}

int main(int count, char **arguments) {
    CHECK(diecut_abi_version() == DIECUT_ABI_VERSION);
    CHECK(diecut_version()[0] != 0);
    if (count == 2 && strcmp(arguments[1], "embedded") == 0) {
        CHECK(diecut_embedded_create("no such profile", &embedded) == DIECUT_SYSTEM);
        OK(diecut_embedded_create("tiny", &embedded));
    } else {
        CHECK(count == 3);
        socket_path = arguments[1];
        vssd = arguments[2];
    }

    diecut_client *client = attach();
    size_t unit = shape.append_unit_bytes;
    CHECK(unit > 0 && shape.block_size_bytes % unit == 0 && shape.append_max_bytes >= unit && shape.units > 0);
    /* A caller of an older version, with a shorter structure. */
    diecut_shape older;
    memset(&older, 0xee, sizeof older);
    OK(diecut_get_shape(client, &older, 16));
    CHECK(older.append_unit_bytes == unit && older.units == 0xeeeeeeee);

    diecut_block block;
    CHECK(diecut_allocate(client, 0, 7, &block) == DIECUT_NOT_NAMED);
    OK(diecut_keep(client, NULL, 0, NULL));
    CHECK(diecut_keep(client, NULL, 0, NULL) == DIECUT_INVALID);
    wrong_arguments(client);
    if (!embedded) {
        diecut_client *second;
        CHECK(diecut_attach(socket_path, vssd, &second) == DIECUT_HELD);
        CHECK(diecut_attach(socket_path, "no-such-vssd", &second) == DIECUT_REFUSED);
        CHECK(strstr(diecut_error_text(), "no-such-vssd") != NULL);
    }

    /* Blocking. */
    uint32_t free_before, free_after, all;
    OK(diecut_unit_blocks(client, 0, &free_before, &all));
    OK(diecut_allocate(client, 0, 7, &block));
    OK(diecut_unit_blocks(client, 0, &free_after, NULL));
    CHECK(free_after + 1 == free_before && free_before <= all);
    unsigned char *bytes = content(1, unit);
    uint64_t offset = 99;
    OK(diecut_append(client, block, bytes, unit, &offset));
    CHECK(offset == 0);
    CHECK(diecut_append(client, block, bytes, unit - 1, NULL) == DIECUT_INVALID);
    expect(client, block, 0, 1, unit);
    unsigned char page[4096];
    CHECK(diecut_read(client, block, unit, page, sizeof page) == DIECUT_ERASED);

    /* Started, polled, finished; and forgotten. */
    diecut_operation *first, *second, *third;
    unsigned char *more = content(2, unit);
    OK(diecut_begin_append(client, block, more, unit, &first));
    OK(diecut_begin_append(client, block, bytes, unit, &second));
    OK(diecut_begin_append(client, block, more, unit, &third));
    diecut_forget(third);
    OK(diecut_finish_append(second, &offset));
    CHECK(offset == 2 * unit);
    CHECK(diecut_poll(first) == 1);
    OK(diecut_finish_append(first, &offset));
    CHECK(offset == unit);
    OK(diecut_begin_read(client, block, unit, 4096, &first));
    while (!diecut_poll(first))
        ;
    OK(diecut_finish_read(first, page, sizeof page));
    CHECK(memcmp(page, more, sizeof page) == 0);
    OK(diecut_begin_read(client, block, 0, 4096, &first));
    CHECK(diecut_finish_read(first, bytes, 8192) == DIECUT_INVALID);
    for (int at = 0; at < 200; at++) {
        OK(diecut_begin_read(client, block, 0, 4096, &first));
        diecut_forget(first);
    }

    /* Threads. */
    pthread_t threads[4];
    struct task tasks[4];
    for (uint32_t at = 0; at < 4; at++) {
        tasks[at] = (struct task){client, at % shape.units};
        CHECK(pthread_create(&threads[at], NULL, work, &tasks[at]) == 0);
    }
    for (int at = 0; at < 4; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);

    /* The next attachment finds what is there. */
    diecut_block unwanted;
    OK(diecut_allocate(client, 0, 255, &unwanted));
    OK(diecut_append(client, unwanted, bytes, unit, NULL));
    OK(diecut_sync(client));
    diecut_detach(client);
    client = attach();
    diecut_held_block held[2];
    size_t held_count = 0;
    CHECK(diecut_held_blocks(client, held, 1, &held_count) == DIECUT_TOO_SMALL);
    CHECK(held_count == 2);
    OK(diecut_held_blocks(client, held, 2, &held_count));
    int at = held[0].purpose == 7 ? 0 : 1;
    CHECK(memcmp(&held[at].block, &block, sizeof block) == 0 && held[at].purpose == 7);
    CHECK(held[1 - at].purpose == 255 && held[1 - at].allocation_sequence > held[at].allocation_sequence);
    CHECK(held[at].written_pages == 4 * unit / shape.page_size_bytes);
    expect(client, block, 0, 1, unit);
    uint32_t freed = 0;
    diecut_block wrong = {0, 0, 0xffffffff};
    CHECK(diecut_keep(client, &wrong, 1, &freed) == DIECUT_INVALID);
    OK(diecut_keep(client, &block, 1, &freed));
    CHECK(freed == 1);
    CHECK(diecut_read(client, unwanted, 0, page, sizeof page) == DIECUT_NOT_ALLOCATED);
    diecut_detach(client);

    /* Attach and keep in one. */
    if (!embedded) {
        int code;
        while ((code = diecut_attach_keeping(socket_path, vssd, &block, 1, &client)) == DIECUT_HELD)
            ;
        OK(code);
    } else {
        client = attach();
        OK(diecut_keep(client, &block, 1, NULL));
    }
    expect(client, block, 0, 1, unit);
    /* A handle in use outlives the attachment, and the device. */
    OK(diecut_begin_read(client, block, 0, 4096, &first));
    diecut_detach(client);
    diecut_embedded_destroy(embedded);
    OK(diecut_finish_read(first, page, sizeof page));
    CHECK(memcmp(page, bytes, sizeof page) == 0);
    free(bytes);
    free(more);
    printf("ok\n");
    return 0;
}
