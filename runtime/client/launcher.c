/* SPDX-License-Identifier: Apache-2.0
 *
 * launcher.c: launchers of parallel jobs and the variables that they set. No state.
 *
 * A variable counts only if it means a job of several ranks. Variables that a shell exports for a
 * series of single programs must not make a gang of them.
 */
#include "runtime/client/launcher.h"
#include "lockd/protocol/wire.h"

#include <fcntl.h>

void gs_lines_read(const char *path, size_t most, void (*take)(char *line, void *context),
                   void *context)
{
    char text[4096 + 1];
    size_t kept = 0;
    ssize_t got;
    GS_CLOSE_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    while (most != 0 && (got = read(fd, text + kept, sizeof text - 1 - kept)) > 0) {
        char *line = text, *end;

        text[kept + (size_t)got] = '\0';
        most -= (size_t)got < most ? (size_t)got : most;
        while ((end = strchr(line, '\n')) != NULL) {
            *end = '\0';
            take(line, context);
            line = end + 1;
        }
        kept = strlen(line);
        if (kept == sizeof text - 1)
            kept = 0; /* too long */
        memmove(text, line, kept);
    }
}

#define TEXT_MOST 1024 /* bytes of a variable that are looked at */
#define ENVIRON_MOST                                                                           \
    ((size_t)1024 * 1024) /* bytes of the first environment that are looked at */

uint64_t gs_evidence_hash(uint64_t hash, const void *bytes, unsigned long size)
{
    const unsigned char *at = bytes;

    hash = hash == 0 ? 0xcbf29ce484222325u : hash; /* FNV-1a */
    for (unsigned long i = 0; i < size; i++)
        /* NOLINTNEXTLINE(clang-analyzer-core.*): it does not follow bytes of larger types */
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

static const char *read_variable(const char *name)
{
    const char *text = getenv(name);

    return text != NULL && *text != '\0' ? text : NULL;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return gs_evidence_hash(hash, text, strnlen(text, TEXT_MOST) + 1);
}

static bool is_several(const char *name)
{
    const char *text = read_variable(name);

    return text != NULL && strtol(text, NULL, 10) > 1;
}

/* The time when a process began, in ticks since boot. Together with the process id it is unique.
 * 0: the process is gone. */
static unsigned long long start_of(pid_t pid)
{
    unsigned long long start = 0;
    char path[32], text[1024];
    const char *at;
    ssize_t got;
    GS_CLOSE_FD int fd = -1;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    got = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (got <= 0)
        return 0;
    text[got] = '\0';
    at = strrchr(text, ')'); /* behind the name, which may contain anything; field 2 */
    for (int field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (at != NULL)
        start = strtoull(at, NULL, 10);
    return start;
}

static uint64_t hash_process(uint64_t hash, pid_t pid)
{
    const unsigned long long start = start_of(pid);

    return gs_evidence_hash(gs_evidence_hash(hash, &pid, sizeof pid), &start, sizeof start);
}

/* The number of ranks, from the first of these variables that holds a number; 0: none does. */
static uint32_t read_ranks(const char *const *names)
{
    for (; *names != NULL; names++) {
        const char *text = read_variable(*names);
        const long ranks = text != NULL ? strtol(text, NULL, 10) : 0;

        if (ranks > 1 && ranks <= GS_KIN_RANKS_MOST)
            return (uint32_t)ranks;
    }
    return 0;
}

static void add_key(struct gs_evidence *keys, unsigned *count, uint32_t kind, uint64_t key,
                    uint32_t ranks)
{
    if (*count < GS_LAUNCHER_MOST)
        keys[(*count)++] = (struct gs_evidence){.key = key, .kind = kind, .ranks = ranks};
}

/* True if the variable was there when the process started. False if that cannot be read. */
static bool was_inherited(const char *name)
{
    const size_t length = strlen(name);
    size_t matched = 0, left = ENVIRON_MOST;
    bool candidate = true, found = false; /* candidate: the entry is the name so far */
    char block[4096];
    ssize_t got;
    const int fd = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    while (!found && left != 0 && (got = read(fd, block, sizeof block)) > 0) {
        for (ssize_t i = 0; i < got && !found; i++) {
            if (block[i] == '\0') {
                matched = 0;
                candidate = true;
            } else if (candidate && matched < length) {
                candidate = block[i] == name[matched++];
            } else if (candidate) {
                found = block[i] == '=';
                candidate = false;
            }
        }
        left -= (size_t)got < left ? (size_t)got : left;
    }
    close(fd);
    return found;
}

static void read_rendezvous(struct gs_evidence *keys, unsigned *count)
{
    const char *address = read_variable("MASTER_ADDR"), *port = read_variable("MASTER_PORT");
    const char *run = read_variable("TORCHELASTIC_RUN_ID");
    const uint32_t ranks = read_ranks((const char *[]){"LOCAL_WORLD_SIZE", "WORLD_SIZE", NULL});
    uint64_t key = 0;

    if (address != NULL && port != NULL)
        key = hash_text(hash_text(0, address), port);
    /* If WORLD_SIZE is not set, only variables that the program itself has set count: it passes the
     * number of ranks as an argument then (init_process_group(world_size=)). */
    if (key != 0 && (read_variable("WORLD_SIZE") != NULL ? is_several("WORLD_SIZE")
                                                         : !was_inherited("MASTER_PORT")))
        add_key(keys, count, GS_KIN_MASTER, key, ranks);
    /* "none" is torchrun's for all jobs without a name */
    if (run != NULL && strcmp(run, "none") != 0 && is_several("WORLD_SIZE"))
        add_key(keys, count, GS_KIN_ELASTIC, hash_text(key, run), ranks);
}

/* The first of these variables that is set names the job. If none is, the launcher names it,
 * since it is the parent of all ranks. */
static uint64_t hash_job(const char *const *names)
{
    for (; *names != NULL; names++) {
        const char *text = read_variable(*names);

        if (text != NULL)
            return hash_text(hash_text(0, *names), text);
    }
    return hash_process(0, getppid());
}

static void read_mpi(struct gs_evidence *keys, unsigned *count)
{
    static const char *const jobs[] = {"PMIX_NAMESPACE",
                                       "OMPI_MCA_ess_base_jobid",
                                       "OMPI_MCA_orte_hnp_uri",
                                       "PMI_JOBID",
                                       "PMI_PORT",
                                       NULL};

    if (is_several("OMPI_COMM_WORLD_SIZE") || is_several("PMI_SIZE") ||
        is_several("MPI_LOCALNRANKS") || read_variable("PMIX_NAMESPACE") != NULL)
        add_key(keys, count, GS_KIN_MPI, hash_job(jobs),
                read_ranks(
                    (const char *[]){"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", NULL}));
}

static void read_slurm(struct gs_evidence *keys, unsigned *count)
{
    const char *job = read_variable("SLURM_JOB_ID"), *step = read_variable("SLURM_STEP_ID");
    const char *nodes = read_variable("SLURM_STEP_NUM_NODES");
    const bool one_node = nodes != NULL && strcmp(nodes, "1") == 0;
    const char *tasks =
        read_variable("SLURM_STEP_NUM_TASKS") != NULL ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";

    if (job != NULL && step != NULL && is_several(tasks))
        add_key(keys, count, GS_KIN_SLURM, hash_text(hash_text(0, job), step),
                one_node ? read_ranks((const char *[]){tasks, NULL}) : 0);
}

unsigned gs_launcher_read(struct gs_evidence keys[GS_LAUNCHER_MOST])
{
    GS_KEEP_ERRNO;
    unsigned count = 0;

    read_rendezvous(keys, &count);
    read_mpi(keys, &count);
    read_slurm(keys, &count);
    if (getppid() > 1)
        add_key(keys, &count, GS_KIN_PARENT, hash_process(0, getppid()), 0);
    if (getsid(0) > 1)
        add_key(keys, &count, GS_KIN_SESSION, hash_process(0, getsid(0)), 0);
    return count;
}

/* Finds TCP connections between this process and others of the same network namespace. The
 * kernel's table (proc_net_tcp(5)) holds both ends of such a connection: a line with an inode
 * that is open here, and a line with the two addresses exchanged. Owns the ends found in the
 * last reading. Client thread. */

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
    self.count = 0;
    for (unsigned fd = 0; fd < DESCRIPTORS_MOST && self.count < SOCKETS_MOST; fd++) {
        char path[32], text[64];
        ssize_t length;

        snprintf(path, sizeof path, "/proc/self/fd/%u", fd);
        length = readlink(path, text, sizeof text - 1);
        text[length > 0 ? length : 0] = '\0';
        if (strncmp(text, "socket:[", 8) == 0)
            self.ends[self.count++] = (struct end){.inode = strtoull(text + 8, NULL, 10)};
    }
    for (unsigned i = 0; i < 2 && self.count != 0; i++)
        gs_lines_read(tables[i], TABLE_MOST, keep_own, NULL);
    for (unsigned i = 0; i < 2 && self.count != 0; i++)
        gs_lines_read(tables[i], TABLE_MOST, keep_peer, &keys);
    return keys.count;
}
