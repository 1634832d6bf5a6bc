/*
 * What TCP over loopback can reach on this machine: two pinned processes, one socket for each
 * direction, large calls straight from and to the user's memory, no checks, headers or interface.
 *
 * Usage: tcp_limit OP,.. BYTES,.. SECONDS CPU CPU
 * Prints one line for each operation and size: OP 2 BYTES MICROSECONDS
 *
 * Operations: pingpong, all_gather, all_to_all, all_reduce. Sizes mean what they mean elsewhere: in
 * all_gather and all_to_all each rank sends half of the bytes. Sums are made of what has come while
 * more comes. Both processes poll. Batches of at least 30 us; the median over batches of rank 0.
 *
 * Sockets use Reno: nothing is ever lost here, and a paced algorithm would measure its pauses.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

static int out, in;
static char *input, *output;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* What has come whole, from `done` on, is added to the own elements. */
static size_t sum(size_t done, size_t come)
{
    float *total = (float *)output;
    const float *own = (const float *)input;
    size_t last = come / sizeof(float);
    for (size_t at = done / sizeof(float); at < last; at++)
        total[at] += own[at];
    return last * sizeof(float);
}

/* Sends and receives so many bytes at the same time. */
static void exchange(const char *from, size_t sends, char *to, size_t receives, int adds)
{
    size_t sent = 0, come = 0, added = 0;
    while (sent < sends || come < receives) {
        if (sent < sends) {
            ssize_t bytes = send(out, from + sent, sends - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (bytes > 0)
                sent += (size_t)bytes;
            else if (errno != EAGAIN)
                fail("tcp_limit: sending");
        }
        if (come < receives) {
            ssize_t bytes = recv(in, to + come, receives - come, MSG_DONTWAIT);
            if (bytes == 0)
                exit(1);
            if (bytes > 0)
                come += (size_t)bytes;
            else if (errno != EAGAIN)
                fail("tcp_limit: receiving");
            if (bytes > 0 && adds)
                added = sum(added, come);
        }
    }
}

static void pingpong(size_t bytes)
{
    if (rank == 0)
        exchange(input, bytes, output, 0, 0);
    exchange(input, 0, output, bytes, 0);
    if (rank == 1)
        exchange(input, bytes, output, 0, 0);
}

static void all_gather(size_t bytes)
{
    size_t own = (size_t)rank * (bytes / 2), other = (size_t)(1 - rank) * (bytes / 2);
    exchange(input, bytes / 2, output + other, bytes / 2, 0);
    memcpy(output + own, input, bytes / 2);
}

static void all_to_all(size_t bytes)
{
    size_t own = (size_t)rank * (bytes / 2), other = (size_t)(1 - rank) * (bytes / 2);
    exchange(input + other, bytes / 2, output + other, bytes / 2, 0);
    memcpy(output + own, input + own, bytes / 2);
}

static void all_reduce(size_t bytes)
{
    exchange(input, bytes, output, bytes, 1);
}

static const struct {
    const char *name;
    void (*run)(size_t);
} operations[] = {
    {"pingpong", pingpong},
    {"all_gather", all_gather},
    {"all_to_all", all_to_all},
    {"all_reduce", all_reduce},
};

static void prepare(int socket)
{
    int one = 1;
    if (setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0)
        fail("tcp_limit: setting up a socket");
    /* What the system has otherwise may be slower, and is no failure. */
    setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

/* The two ends of a connection over loopback. */
static void connection(int ends[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, len) != 0 ||
        listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &len) != 0)
        fail("tcp_limit: listening");
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (ends[0] < 0 || connect(ends[0], (struct sockaddr *)&address, len) != 0)
        fail("tcp_limit: connecting");
    ends[1] = accept(listener, NULL, NULL);
    if (ends[1] < 0)
        fail("tcp_limit: accepting");
    close(listener);
    prepare(ends[0]);
    prepare(ends[1]);
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: tcp_limit OP,.. BYTES,.. SECONDS CPU CPU\n");
        return 2;
    }
    orders = mmap(NULL, 2 * sizeof *orders, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                  -1, 0);
    if (orders == MAP_FAILED)
        fail("tcp_limit: mapping memory");
    int there[2], back[2];
    connection(there);
    connection(back);
    pid_t child = fork();
    if (child < 0)
        fail("tcp_limit: starting the second process");
    rank = child == 0;
    if (rank == 1)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(atoi(argv[4 + rank]));
    out = rank == 0 ? there[0] : back[0];
    in = rank == 0 ? back[1] : there[1];

    size_t largest = 0;
    char *sizes = strdup(argv[2]);
    for (char *size = strtok(sizes, ","); size; size = strtok(NULL, ","))
        largest = strtoul(size, NULL, 10) > largest ? strtoul(size, NULL, 10) : largest;
    free(sizes);
    input = aligned_alloc(4096, (largest + 8192) / 4096 * 4096);
    output = aligned_alloc(4096, (largest + 8192) / 4096 * 4096);
    if (!input || !output)
        return 1;
    memset(input, 0, largest + 4096);
    memset(output, 0, largest + 4096);

    char *names = NULL, *rest = NULL;
    for (char *name = strtok_r(argv[1], ",", &names); name; name = strtok_r(NULL, ",", &names)) {
        void (*run)(size_t) = NULL;
        for (size_t at = 0; at < sizeof operations / sizeof *operations; at++)
            if (strcmp(name, operations[at].name) == 0)
                run = operations[at].run;
        if (!run)
            continue;
        char *list = strdup(argv[2]);
        for (char *size = strtok_r(list, ",", &rest); size; size = strtok_r(NULL, ",", &rest)) {
            size_t bytes = strtoul(size, NULL, 10) / 8 * 8;
            double us = measure(run, bytes, atof(argv[3]));
            if (rank == 0) {
                printf("%s 2 %zu %.4f\n", name, bytes, run == pingpong ? us / 2 : us);
                fflush(stdout);
            }
        }
        free(list);
    }
    if (rank == 0)
        waitpid(child, NULL, 0);
    return 0;
}
