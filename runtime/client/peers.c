/* SPDX-License-Identifier: Apache-2.0
 *
 * peers.c: finds TCP connections between this process and others of the same network namespace.
 * The kernel's table (proc_net_tcp(5)) holds both ends of such a connection: a line with an
 * inode that is open here, and a line with the two addresses exchanged. Owns the ends found in
 * the last reading. Client thread.
 */
#include "runtime/client/peers.h"
#include "runtime/base/lines.h"
#include "runtime/client/launcher.h"

#define SOCKETS_MOST     256
#define DESCRIPTORS_MOST 1024                      /* the lowest descriptors are looked at */
#define TABLE_MOST       ((size_t)4 * 1024 * 1024) /* bytes of a table that are read */
#define ESTABLISHED      "01"

struct end {
    unsigned long long inode;
    uint64_t local, remote; /* hashes of the addresses */
};

static struct {
    struct end ends[SOCKETS_MOST]; /* without addresses: no connection */
    unsigned count;
} self;

static void list_sockets(void)
{
    self.count = 0;
    for (unsigned fd = 0; fd < DESCRIPTORS_MOST && self.count < SOCKETS_MOST; fd++) {
        char path[32], text[64];
        ssize_t size;

        snprintf(path, sizeof path, "/proc/self/fd/%u", fd);
        size = readlink(path, text, sizeof text - 1);
        text[size > 0 ? size : 0] = '\0';
        if (strncmp(text, "socket:[", 8) == 0)
            self.ends[self.count++] = (struct end){.inode = strtoull(text + 8, NULL, 10)};
    }
}

/* A line of the table: number, local address, remote address, state ... inode, the tenth.
 * False: it is no connection. */
static bool parse_line(char *line, struct end *end)
{
    char *words[10], *rest = NULL;
    unsigned count = 0;

    for (char *word = strtok_r(line, " ", &rest); word != NULL && count < 10;
         word = strtok_r(NULL, " ", &rest))
        words[count++] = word;
    if (count < 10 || strcmp(words[3], ESTABLISHED) != 0)
        return false;
    *end = (struct end){.inode = strtoull(words[9], NULL, 10),
                        .local = gs_evidence_hash(0, words[1], strlen(words[1])),
                        .remote = gs_evidence_hash(0, words[2], strlen(words[2]))};
    return true;
}

static struct end *find_own(unsigned long long inode)
{
    for (unsigned i = 0; i < self.count; i++)
        if (self.ends[i].inode == inode)
            return &self.ends[i];
    return NULL;
}

static void keep_own(char *line, void *context)
{
    struct end end, *own = parse_line(line, &end) ? find_own(end.inode) : NULL;

    (void)context;
    if (own != NULL)
        *own = end;
}

struct keys {
    uint64_t *keys, hash; /* hash: of the network namespace */
    unsigned count;
};

/* Both ends have to keep the same keys of many: the smallest. */
static void keep_key(struct keys *keys, uint64_t key)
{
    unsigned largest = 0;

    if (keys->count < GS_PEERS_MOST) {
        keys->keys[keys->count++] = key;
        return;
    }
    for (unsigned i = 1; i < keys->count; i++)
        if (keys->keys[i] > keys->keys[largest])
            largest = i;
    if (key < keys->keys[largest])
        keys->keys[largest] = key;
}

/* The other end of one of ours, in another process. */
static void keep_peer(char *line, void *context)
{
    struct keys *keys = context;
    struct end end;

    if (!parse_line(line, &end) || find_own(end.inode) != NULL)
        return;
    for (unsigned i = 0; i < self.count; i++) {
        const struct end *own = &self.ends[i];
        const bool lower = own->local < own->remote;
        const uint64_t both[2] = {lower ? own->local : own->remote,
                                  lower ? own->remote : own->local};

        if (own->local != 0 && own->local == end.remote && own->remote == end.local)
            keep_key(keys, gs_evidence_hash(keys->hash, both, sizeof both));
    }
}

unsigned gs_peers_read(uint64_t found[GS_PEERS_MOST])
{
    static const char *const tables[] = {"/proc/self/net/tcp", "/proc/self/net/tcp6"};
    struct keys keys = {.keys = found};
    char space[64];
    const ssize_t size = readlink("/proc/self/ns/net", space, sizeof space);

    keys.hash = gs_evidence_hash(0, space, size > 0 ? (size_t)size : 0);
    list_sockets();
    for (unsigned i = 0; i < 2 && self.count != 0; i++)
        gs_lines_read(tables[i], TABLE_MOST, keep_own, NULL);
    for (unsigned i = 0; i < 2 && self.count != 0; i++)
        gs_lines_read(tables[i], TABLE_MOST, keep_peer, &keys);
    return keys.count;
}
