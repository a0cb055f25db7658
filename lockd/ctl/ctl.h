/* SPDX-License-Identifier: Apache-2.0
 *
 * ctl.h: the types that all files of gpusharectl share, its commands, its side of the connection to
 * the daemon, and the texts of errors with their exit codes. Each command is one file that exports a
 * struct ctl_command; lockd/gpusharectl.c lists them.
 */
#pragma once

#include "common/each.h"
#include "common/pods.h"
#include "common/options.h"
#include "lockd/base/clock.h"
#include "lockd/nvml/nvml.h"

/* Exit codes, those of systemctl(1) where it has such a code: 3 is "not running", 4 "no
 * such unit". */
enum ctl_exit {
    CTL_OK = 0,
    CTL_FAILED = 1,
    CTL_USAGE = 2,
    CTL_NO_DAEMON = 3,
    CTL_NO_PROGRAM = 4,
};

struct ctl {
    struct gs_places places;
    char path[GS_PATH_SIZE]; /* of the daemon's socket, when there is a connection */
    bool kept_out;           /* there is a service to which this user may not connect */
    bool path_by_user;       /* --socket was given */
    int patience_s;          /* time limit of an answer; 0: 10 s */
    const struct ctl_command *command; /* the one that runs */
    struct gs_err err;
};

struct ctl_command {
    const char *name;
    /* Of the usage line, without options. Completion offers process ids, settings, values and files
     * for PID, NAME, VALUE and FILE, and words in small letters as they are. */
    const char *arguments;
    const char *help;
    /* words: the values of its options, at their offsets, 0 where an option is not given; operands:
     * the other arguments, none where `arguments` is "". */
    enum ctl_exit (*run)(struct ctl *ctl, const void *words, int count, char **operands);
    void (*details)(void);           /* prints more for its --help; may be NULL */
    const struct gs_option *options; /* NULL: its arguments are not read as options */
};

#define CTL_WORDS_SIZE 64 /* bytes: the most that a command's options take */

extern const struct ctl_command ctl_status, ctl_top, ctl_get, ctl_set, ctl_pause, ctl_resume,
    ctl_evict, ctl_suspend, ctl_move, ctl_reload, ctl_trace, ctl_metrics, ctl_serve, ctl_doctor,
    ctl_cdi, ctl_account;

/* Kubelet's names for the pod and the container of a program; "": not known. */
struct ctl_pod {
    char name[PODS_NAME_SIZE], space[PODS_NAME_SIZE], container[PODS_NAME_SIZE];
};

/* The whole answer to GS_WIRE_STATUS, _GET or _ACCOUNT, in the daemon's order. */
struct ctl_answer {
    bool running;
    struct gs_wire_daemon daemon;
    struct gs_wire_device *devices;
    struct gs_wire_client *clients;
    struct gs_wire_totals *totals;
    struct gs_wire_remark *remarks;
    struct gs_wire_setting *settings;
    struct gs_wire_account account; /* of GS_WIRE_ACCOUNT */
    size_t device_count, client_count, total_count, remark_count, setting_count;
    struct gs_wire_end end;
    struct nvml_table gpus; /* gpus.c; no GPUs: not asked, or not known */
    struct ctl_outsider
        *outsiders; /* gpus.c: processes on GPUs that the daemon does not know */
    size_t outsider_count;
    struct ctl_pod *client_pods; /* words.c; NULL: not asked, or no program is in a pod */
};

#define CTL_BUSY_UNKNOWN NVML_UNKNOWN

/* Connects to the daemon; -ENOENT: there is none. The reason of a failure is in ctl->err. */
int ctl_connect(struct ctl *ctl);
/* The path at which a daemon of this user would listen, while there is none. */
const char *ctl_own_place(const struct ctl *ctl);
/* Receives the next message, and checks it. 0 or -errno. */
int ctl_receive(struct ctl *ctl, int fd, union lockd_message *message);
/* Sends one request and takes the answer to its END. 0; -ENOENT: no daemon (in ctl->err);
 * -errno. */
int ctl_ask(struct ctl *ctl, const void *request, size_t size, struct ctl_answer *answer);
/* Requests the whole status. Returns as ctl_ask() does. */
int ctl_ask_status(struct ctl *ctl, struct ctl_answer *answer);
void ctl_answer_deinit(struct ctl_answer *answer);
/* Prints a refusal and returns the exit code for it. */
enum ctl_exit ctl_refused(const struct gs_wire_end *end);

/* Prints ctl->err and returns the exit code for it. */
enum ctl_exit ctl_fail(const struct ctl *ctl);
/* Flushes the output. Returns code, unless it could not be written. */
enum ctl_exit ctl_done(enum ctl_exit code);
/* Not 0: SIGINT or SIGTERM has come, which ctl_catch_interrupts() catches. */
extern volatile int ctl_interrupted;
void ctl_catch_interrupts(void);
/* "usage: gpusharectl NAME [--OPTION] ARGUMENTS" */
void ctl_print_usage(const struct ctl_command *command, FILE *out);
/* Prints an error in the command line, and the usage line of the command that runs. */
enum ctl_exit ctl_usage(const struct ctl *ctl, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

struct ctl_rate {
    double out, in; /* bytes a second */
    double gpu;     /* of the time it ran: 0 to 1 */
    double calls;   /* a second */
    uint64_t turns; /* switches that began meanwhile */
};

/* The number of earlier programs in the answer that look the same: a process with two
 * connections, or two processes in pid namespaces that we cannot see into. */
unsigned ctl_twin(const struct ctl_answer *answer, size_t index);

/* The rates of the program at that index of answer, since `before`. elapsed_ns: between the
 * answers. A program that is new, or whose figures have decreased (another process with the
 * same id), has no rates yet: all are 0. */
struct ctl_rate ctl_rate_of(const struct ctl_answer *before, const struct ctl_answer *answer,
                            size_t index, uint64_t elapsed_ns);
