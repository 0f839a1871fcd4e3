/*
 * diecut: erase blocks of a virtual SSD for applications.
 *
 * An application attaches to a vSSD that a diecut server serves with `--use blocks`, says which erase blocks it still
 * needs, and then allocates, appends to, reads and frees erase blocks by itself: its own log and its own cleaner, with
 * no map in between. A vSSD has numbered independent units (dies, or parts of dies), which work in parallel; an erase
 * block lies on one of them. Data are appended in whole append units, once, in order; what is to be written again is
 * written elsewhere and the erase block is freed.
 *
 *     diecut_client *client;
 *     diecut_block block;
 *     if (diecut_attach("diecut-data/blocks.sock", "db", &client) != DIECUT_OK ||
 *         diecut_keep(client, NULL, 0, NULL) != DIECUT_OK ||
 *         diecut_allocate(client, 0, 7, &block) != DIECUT_OK ||
 *         diecut_append(client, block, bytes, length, NULL) != DIECUT_OK)
 *             fprintf(stderr, "%s\n", diecut_error_text());
 *
 * Link with `pkg-config --cflags --libs diecut`.
 *
 * Calls return DIECUT_OK or another code of enum diecut_code; diecut_error_text() then says more. All calls may be made
 * from any number of threads at once, but one operation handle belongs to one thread at a time. Calls block the calling
 * thread until the server has answered, except diecut_begin_append(), diecut_begin_read() (which wait only while
 * all places for operations are taken) and diecut_poll(). No call terminates the process or lets an exception through.
 * Every pointer marked "may be NULL" may be; others are refused with DIECUT_INVALID.
 *
 * Stability: within one DIECUT_ABI_VERSION, functions, codes and the meaning of what is here stay; functions and codes
 * are added; structures that may grow are passed with their size.
 */
#ifndef DIECUT_H
#define DIECUT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What diecut_abi_version() returns if the library is one for this header. */
#define DIECUT_ABI_VERSION 1

/* How a call ended. */
enum diecut_code {
    DIECUT_OK = 0,
    /* No free erase block on this unit. */
    DIECUT_NO_FREE_BLOCK = 1,
    /* The erase block is not held by this application. */
    DIECUT_NOT_ALLOCATED = 2,
    /* The data cannot be read back. */
    DIECUT_UNCORRECTABLE = 3,
    /* Nothing was appended there. */
    DIECUT_ERASED = 4,
    /* The append failed. What the block held before still reads; append to another one and free this one. */
    DIECUT_APPEND_FAILED = 5,
    /* The die under the unit does not answer. */
    DIECUT_UNIT_OFFLINE = 6,
    /* The vSSD takes no more writes: its reserve of good erase blocks is used up. */
    DIECUT_READ_ONLY = 7,
    /* The device has no power. */
    DIECUT_POWER_LOST = 8,
    /* An argument is out of range. */
    DIECUT_INVALID = 9,
    /* The append does not fit into the rest of the erase block. */
    DIECUT_BLOCK_FULL = 10,
    /* diecut_keep() comes first. */
    DIECUT_NOT_NAMED = 11,
    /* The erase block has appends under way. */
    DIECUT_BLOCK_BUSY = 12,
    /* Attach: there is no such vSSD for this user. */
    DIECUT_REFUSED = 13,
    /* Attach: another application holds the vSSD, or its last operations are under way. Try again. */
    DIECUT_HELD = 14,
    /* Attach: the server speaks another version. */
    DIECUT_VERSION = 15,
    /* The device has no room for the block at present: the file system it lies on is full. */
    DIECUT_NO_ROOM = 16,
    /* The server is gone. Detach, and attach again when it is back. */
    DIECUT_SERVER_GONE = 100,
    /* Attach: whatever listens at the socket is no diecut server. */
    DIECUT_NO_SERVER = 101,
    /* The operating system refused something, for instance the socket; diecut_error_text() says what. */
    DIECUT_SYSTEM = 102,
    /* The array is too short for the answer. */
    DIECUT_TOO_SMALL = 103,
    /* A bug of the library; please report it with diecut_error_text(). */
    DIECUT_INTERNAL = 104
};

/* A vSSD that this process holds. */
typedef struct diecut_client diecut_client;
/* An append or a read under way. */
typedef struct diecut_operation diecut_operation;
/* A device in the memory of this process, for tests of applications. */
typedef struct diecut_embedded diecut_embedded;

/* Name of an erase block: the index-th of its unit. */
typedef struct diecut_block {
    uint16_t unit;
    uint16_t reserved; /* 0 */
    uint32_t index;
} diecut_block;

/* Shape of every erase block of a vSSD. */
typedef struct diecut_shape {
    uint64_t block_size_bytes;
    /* Appends are multiples of this. */
    uint64_t append_unit_bytes;
    /* Reads are multiples of this, and begin at multiples of it. */
    uint64_t read_unit_bytes;
    /* Most bytes of one diecut_begin_append(), and of one diecut_begin_read(); diecut_append() and diecut_read() have no limit. */
    uint64_t append_max_bytes;
    uint64_t read_max_bytes;
    uint32_t page_size_bytes;
    /* How many of the append units last appended to a block that is not full a power cut can destroy. */
    uint32_t unsafe_units;
    /* Independent units. */
    uint32_t units;
    uint32_t reserved; /* 0 */
} diecut_shape;

/* An erase block that the vSSD holds for this application. */
typedef struct diecut_held_block {
    diecut_block block;
    /* As given to diecut_allocate(). */
    uint32_t purpose;
    /* Pages that were appended. After a power cut the last ones may be torn: reading them fails. */
    uint32_t written_pages;
    /* Rises with every allocation of the vSSD: tells which of two blocks was opened later. */
    uint64_t allocation_sequence;
} diecut_held_block;

/* DIECUT_ABI_VERSION of the library, and its version for people ("0.1.0"). */
uint32_t diecut_abi_version(void);
const char *diecut_version(void);

/* What the last call of this thread that failed has to say; "" if none did. Valid until the next one fails. */
const char *diecut_error_text(void);
/* What a code means, in general. Valid for ever. */
const char *diecut_code_text(int code);

/*
 * Attaches to a vSSD at a server's socket (`blocks.sock` in its data folder). One application at a time holds a vSSD. Until
 * diecut_keep() nothing can be changed; reading is allowed, to find out what is to be kept.
 */
int diecut_attach(const char *socket, const char *vssd, diecut_client **client);
/* Attaches and keeps, for applications that know their live blocks from elsewhere. */
int diecut_attach_keeping(const char *socket, const char *vssd, const diecut_block *blocks, size_t count,
                          diecut_client **client);
/*
 * Gives the vSSD back; its erase blocks stay as they are. NULL is allowed. Operations under way keep the vSSD attached until they
 * are finished or forgotten.
 */
void diecut_detach(diecut_client *client);

/* Fills the first `size` bytes of a structure; `size` is sizeof(diecut_shape) of the caller. */
int diecut_get_shape(const diecut_client *client, diecut_shape *shape, size_t size);

/*
 * All erase blocks held. `count` gets how many there are; the first `capacity` of them are written to `blocks` (may be NULL
 * with a capacity of 0). DIECUT_TOO_SMALL if there are more.
 */
int diecut_held_blocks(const diecut_client *client, diecut_held_block *blocks, size_t capacity, size_t *count);
/*
 * Says, once after attaching, which erase blocks are still needed. All others are freed, durably; `freed` (may be NULL) gets
 * how many. If one of them is not held, nothing is freed, and it may be tried again.
 */
int diecut_keep(const diecut_client *client, const diecut_block *blocks, size_t count, uint32_t *freed);

/*
 * Takes an erase block of a unit. `purpose` (0 to 255) is kept with it and comes back with diecut_held_blocks(). Durable with
 * the first append to the block, or the next diecut_sync().
 */
int diecut_allocate(const diecut_client *client, uint32_t unit, uint32_t purpose, diecut_block *block);
/*
 * Appends whole append units. Durable when it returns (but see unsafe_units). `offset` (may be NULL) gets the place of the
 * first byte in the block. After an error, pieces of append_max_bytes that came before the one that failed stay.
 */
int diecut_append(const diecut_client *client, diecut_block block, const void *bytes, size_t length,
                  uint64_t *offset);
/* Reads whole read units. */
int diecut_read(const diecut_client *client, diecut_block block, uint64_t offset, void *bytes, size_t length);
/* Gives an erase block back. Until the next diecut_sync(), a power cut may bring it back with all it held. */
int diecut_free(const diecut_client *client, diecut_block block);
/* Waits until all allocations and frees before it are durable. */
int diecut_sync(const diecut_client *client);
/* Erase blocks of a unit that can still be allocated, and all of them. Both may be NULL. */
int diecut_unit_blocks(const diecut_client *client, uint32_t unit, uint32_t *free_blocks, uint32_t *all_blocks);

/*
 * Starts an append of at most append_max_bytes; the bytes are copied before it returns. Appends to one block take effect in the
 * order in which they are started.
 */
int diecut_begin_append(const diecut_client *client, diecut_block block, const void *bytes, size_t length,
                        diecut_operation **operation);
/* Starts a read of at most read_max_bytes. */
int diecut_begin_read(const diecut_client *client, diecut_block block, uint64_t offset, size_t length,
                      diecut_operation **operation);
/* 1 if an operation is over, so that finishing it does not wait; 0 if not; 1 for NULL. */
int diecut_poll(const diecut_operation *operation);
/* Waits for an append and releases the handle, whatever comes. `offset` may be NULL. */
int diecut_finish_append(diecut_operation *operation, uint64_t *offset);
/* Waits for a read, copies its first `length` bytes, not more than were asked for, and releases the handle, whatever comes. */
int diecut_finish_read(diecut_operation *operation, void *bytes, size_t length);
/* Releases a handle without waiting; the operation takes place all the same. NULL is allowed. */
void diecut_forget(diecut_operation *operation);

/*
 * A device of a named profile ("tiny", "slc", ...) in the memory of this process, all of it one vSSD, served by a thread over the
 * same rings: for tests. Its content lives as long as the handle or a client of it.
 */
int diecut_embedded_create(const char *profile, diecut_embedded **embedded);
/* Attaches to it. Waits at its first call until the client before is gone. */
int diecut_embedded_attach(const diecut_embedded *embedded, diecut_client **client);
/* Ends it, when its clients are gone. NULL is allowed. */
void diecut_embedded_destroy(diecut_embedded *embedded);

#ifdef __cplusplus
}
#endif

#endif
