/*
 * What a step FIFO in shared memory can reach on this machine: two pinned processes, no checks, no
 * interface, nothing but the stores, loads and copies that the data path cannot do without.
 *
 * Usage: fifo_limit OP,.. BYTES,.. SECONDS CPU CPU
 * Prints one line for each operation and size: OP 2 BYTES MICROSECONDS
 *
 * Operations: pingpong, all_reduce. Up to 56 bytes travel in the line that publishes them, more
 * through slots of 64 KiB. And all_reduce_direct, all_gather_direct, broadcast_direct: on buffers that
 * both processes have mapped, where each reads the other's memory and writes its own. Batches of at
 * least 20 us; the median over batches of rank 0.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

#define SLOTS 8
#define SLOT_BYTES 65536UL
/* Keeps slots and user buffers from sharing their page offset. */
#define SKEW_BYTES 320UL
#define LINE_BYTES 56UL

struct line {
    _Alignas(64) char data[LINE_BYTES];
    _Atomic uint64_t step;
};

struct edge {
    _Alignas(128) _Atomic uint64_t head;
    _Alignas(128) _Atomic uint64_t tail;
    _Alignas(128) struct line lines[SLOTS];
    _Alignas(128) char slots[SLOTS * (SLOT_BYTES + SKEW_BYTES)];
};

struct shared {
    struct edge edges[2];
    _Alignas(128) _Atomic int ready;
    _Alignas(128) _Atomic long order[2];
};

static struct edge *out, *in;
static uint64_t sent, received;
static float *input, *output;
/* The other rank's. */
static const float *their_input, *their_output;

typedef float vector __attribute__((vector_size(32), aligned(4), may_alias));

/* Not memcpy, which may be `rep movsb`: slow where source and destination share a page offset. */
static void copy(void *to, const void *from, size_t bytes)
{
    vector *target = to;
    const vector *source = from;
    size_t vectors = bytes / sizeof(vector);
    for (size_t at = 0; at < vectors; at++) {
        target[at] = source[at];
        __asm__ volatile("" ::: "memory");
    }
    size_t done = vectors * sizeof(vector);
    if (done < bytes)
        memcpy((char *)to + done, (const char *)from + done, bytes - done);
}

static void sum(float *to, float *also, const float *left, const float *right, size_t count)
{
    size_t at = 0;
    for (; at + 8 <= count; at += 8) {
        vector total = *(const vector *)(left + at) + *(const vector *)(right + at);
        *(vector *)(to + at) = total;
        if (also)
            *(vector *)(also + at) = total;
    }
    for (; at < count; at++) {
        to[at] = left[at] + right[at];
        if (also)
            also[at] = to[at];
    }
}

static void *slot_of(struct edge *edge, uint64_t step)
{
    return edge->slots + step % SLOTS * (SLOT_BYTES + SKEW_BYTES);
}

static void *reserve(void)
{
    while (atomic_load_explicit(&out->head, memory_order_acquire) + SLOTS <= sent)
        relax();
    return slot_of(out, sent);
}

static void publish(void)
{
    atomic_store_explicit(&out->tail, ++sent, memory_order_release);
}

static void *arrive(void)
{
    while (atomic_load_explicit(&in->tail, memory_order_acquire) <= received)
        relax();
    return slot_of(in, received);
}

static void consume(void)
{
    atomic_store_explicit(&in->head, ++received, memory_order_release);
}

static uint64_t lines_sent, lines_received;

static void send_line(const void *data, size_t bytes)
{
    struct line *line = &out->lines[lines_sent % SLOTS];
    memcpy(line->data, data, bytes);
    atomic_store_explicit(&line->step, ++lines_sent, memory_order_release);
}

static const void *receive_line(void)
{
    struct line *line = &in->lines[lines_received++ % SLOTS];
    while (atomic_load_explicit(&line->step, memory_order_acquire) != lines_received)
        relax();
    return line->data;
}

static size_t least(size_t left, size_t right)
{
    return left < right ? left : right;
}

static void send_all(const char *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += SLOT_BYTES) {
        copy(reserve(), from + at, least(SLOT_BYTES, bytes - at));
        publish();
    }
}

static void receive_all(char *to, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += SLOT_BYTES) {
        copy(to + at, arrive(), least(SLOT_BYTES, bytes - at));
        consume();
    }
}

static void ping(size_t bytes)
{
    if (bytes <= LINE_BYTES) {
        send_line(input, bytes);
        memcpy(output, receive_line(), bytes);
    } else {
        send_all((const char *)input, bytes);
        receive_all((char *)output, bytes);
    }
}

static void pong(size_t bytes)
{
    if (bytes <= LINE_BYTES) {
        memcpy(output, receive_line(), bytes);
        send_line(input, bytes);
    } else {
        receive_all((char *)output, bytes);
        send_all((const char *)input, bytes);
    }
}

static void pingpong(size_t bytes)
{
    if (rank == 0)
        ping(bytes);
    else
        pong(bytes);
}

/* Each rank sends the half that the other one reduces; that one keeps and returns the result. */
static void all_reduce(size_t bytes)
{
    if (bytes <= LINE_BYTES) {
        send_line(input, bytes);
        float other[LINE_BYTES / sizeof(float)];
        memcpy(other, receive_line(), bytes);
        sum(output, NULL, input, other, bytes / sizeof(float));
        return;
    }
    size_t first = bytes / 8 * 4, second = bytes - first;
    size_t own_at = rank ? first : 0, own_bytes = rank ? second : first;
    size_t other_at = rank ? 0 : first, other_bytes = rank ? first : second;
    const char *own = (const char *)input + own_at, *other = (const char *)input + other_at;
    char *own_result = (char *)output + own_at, *other_result = (char *)output + other_at;
    for (size_t at = 0; at < own_bytes || at < other_bytes; at += SLOT_BYTES) {
        if (at < other_bytes) {
            copy(reserve(), other + at, least(SLOT_BYTES, other_bytes - at));
            publish();
        }
        if (at < own_bytes) {
            size_t count = least(SLOT_BYTES, own_bytes - at) / sizeof(float);
            const float *theirs = arrive();
            sum((float *)(own_result + at), reserve(), (const float *)(own + at), theirs, count);
            publish();
            consume();
        }
        if (at < other_bytes) {
            copy(other_result + at, arrive(), least(SLOT_BYTES, other_bytes - at));
            consume();
        }
    }
}

static void meet(void)
{
    send_line("", 1);
    receive_line();
}

/* Each rank reduces its half of both inputs and copies the other half of the result. */
static void all_reduce_direct(size_t bytes)
{
    size_t first = bytes / 128 * 64;
    size_t at = rank ? first : 0, own = rank ? bytes - first : first;
    size_t other_at = rank ? 0 : first, other = bytes - own;
    meet();
    sum(output + at / 4, NULL, input + at / 4, their_input + at / 4, own / 4);
    meet();
    copy((char *)output + other_at, (const char *)their_output + other_at, other);
    /* The caller gets its buffers back. */
    meet();
}

static void all_gather_direct(size_t bytes)
{
    size_t block = bytes / 8 * 4;
    char *own = (char *)output + (rank ? block : 0), *other = (char *)output + (rank ? 0 : block);
    meet();
    copy(own, input, block);
    copy(other, their_input, block);
    meet();
}

static void broadcast_direct(size_t bytes)
{
    if (rank == 0) {
        send_line("", 1);
        receive_line();
    } else {
        receive_line();
        copy(input, their_input, bytes);
        send_line("", 1);
    }
}

struct operation {
    const char *name;
    void (*run)(size_t);
    /* The part of a call that counts. */
    double share;
};

static const struct operation operations[] = {
    {"pingpong", pingpong, 0.5},
    {"all_reduce", all_reduce, 1},
    {"all_reduce_direct", all_reduce_direct, 1},
    {"all_gather_direct", all_gather_direct, 1},
    {"broadcast_direct", broadcast_direct, 1},
};

static const struct operation *find(const char *name)
{
    for (size_t at = 0; at < sizeof operations / sizeof *operations; at++)
        if (strcmp(operations[at].name, name) == 0)
            return &operations[at];
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: fifo_limit OP,.. BYTES,.. SECONDS CPU CPU\n");
        return 2;
    }
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("fifo_limit: mapping memory");
        return 1;
    }
    memset(shared, 0, sizeof *shared);
    orders = shared->order;
    size_t largest = 0;
    char *sizes = strdup(argv[2]);
    for (char *size = strtok(sizes, ","); size; size = strtok(NULL, ","))
        largest = strtoul(size, NULL, 10) > largest ? strtoul(size, NULL, 10) : largest;
    free(sizes);
    /* Two inputs, two outputs. */
    size_t stride = (largest + 8192) / 4096 * 4096;
    char *buffers = mmap(NULL, 4 * stride, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (buffers == MAP_FAILED) {
        perror("fifo_limit: mapping buffers");
        return 1;
    }
    pid_t child = fork();
    if (child < 0) {
        perror("fifo_limit: starting the second process");
        return 1;
    }
    rank = child == 0;
    if (rank == 1)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(atoi(argv[4 + rank]));
    out = &shared->edges[rank];
    in = &shared->edges[1 - rank];

    input = (float *)(buffers + rank * stride);
    output = (float *)(buffers + (2 + rank) * stride);
    their_input = (float *)(buffers + (1 - rank) * stride);
    their_output = (float *)(buffers + (3 - rank) * stride);
    memset(input, 0, stride);
    memset(output, 0, stride);

    atomic_fetch_add(&shared->ready, 1);
    while (atomic_load(&shared->ready) < 2)
        sched_yield();
    char *names = NULL, *rest = NULL;
    for (char *name = strtok_r(argv[1], ",", &names); name; name = strtok_r(NULL, ",", &names)) {
        const struct operation *operation = find(name);
        if (!operation)
            continue;
        char *list = strdup(argv[2]);
        for (char *size = strtok_r(list, ",", &rest); size; size = strtok_r(NULL, ",", &rest)) {
            size_t bytes = strtoul(size, NULL, 10) / 4 * 4;
            double us = measure(operation->run, bytes, atof(argv[3]));
            if (rank == 0) {
                printf("%s 2 %zu %.4f\n", name, bytes, us * operation->share);
                fflush(stdout);
            }
        }
        free(list);
    }
    if (rank == 0)
        waitpid(child, NULL, 0);
    return 0;
}
