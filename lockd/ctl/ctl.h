/* SPDX-License-Identifier: Apache-2.0
 *
 * ctl.h: declarations that all files of gpusharectl share. Each command is one file that exports a
 * struct ctl_command; lockd/gpusharectl.c lists them.
 */
#ifndef GS_LOCKD_CTL_CTL_H
#define GS_LOCKD_CTL_CTL_H

#include "cluster/pods/pods.h"
#include "common/err.h"
#include "lockd/base/options.h"
#include "lockd/protocol/figures.h"
#include "lockd/protocol/names.h"
#include "lockd/protocol/wire_check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Exit codes, those of systemctl(1) where it has one: 3 is "not running", 4 "no such unit". */
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
    struct gs_err err;
};

struct ctl_command {
    const char *name;
    /* Of the usage line, without options. Completion offers process ids, settings, values and files
     * for PID, NAME, VALUE and FILE, and words in small letters as they are. */
    const char *arguments;
    const char *help;
    enum ctl_exit (*run)(struct ctl *ctl, int argc,
                         char **argv);  /* argv[0] is the command's name */
    void (*details)(void);              /* prints more for its --help; may be NULL */
    const struct lockd_option *options; /* for its --help and the shells' completion */
};

/* The one option of most commands; its value is a bool. */
extern const struct lockd_option ctl_json_option[];
/* complete.c: prints the words that may follow on the line after the command, at argv[from]. */
struct gs_complete;
void ctl_complete(struct ctl *ctl, const struct ctl_command *command, int from, int argc,
                  char **argv);

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
    /* nvml.c: the part of the last second in which the device, or the program on it, was busy,
     * per cent; NULL: not asked */
    int *device_busy, *client_busy;
    struct ctl_pod *client_pods; /* who.c; NULL: not asked, or no program is in a pod */
};

#define CTL_BUSY_UNKNOWN (-1)
/* The value of the device or program at that index. */
int ctl_device_busy(const struct ctl_answer *answer, size_t index);
int ctl_client_busy(const struct ctl_answer *answer, size_t index);

/* Connects to the daemon; -ENOENT: there is none. The reason of a failure is in ctl->err. */
int ctl_connect(struct ctl *ctl);
/* The path at which a daemon of this user would listen, while there is none. */
const char *ctl_own_place(const struct ctl *ctl);
/* Receives the next message, and checks it. 0 or -errno. */
int ctl_receive(struct ctl *ctl, int fd, union lockd_message *message);
/* Sends one request and takes the answer to its END. 0; -ENOENT: no daemon (in ctl->err);
 * -errno. */
int ctl_ask(struct ctl *ctl, const void *request, size_t size, struct ctl_answer *answer);
void ctl_answer_deinit(struct ctl_answer *answer);
/* Carries out one control operation: sends the request and prints the outcome ("paused", for
 * example, and the number of programs) or the error, as text or as JSON. */
struct ctl_act {
    uint32_t op; /* enum gs_control_op */
    int32_t pid;
    uint64_t value;
    bool json;
    const char
        *done; /* such as "paused": printed with the number of programs; NULL: prints nothing */
};
enum ctl_exit ctl_act(struct ctl *ctl, const struct ctl_act *act);
/* The same without printing anything. 0: *end is the daemon's answer; else -errno, with the
 * error in ctl->err. */
int ctl_control(struct ctl *ctl, const struct ctl_act *act, struct gs_wire_end *end);
/* Prints the outcome of an operation as JSON. error: its text, or NULL. */
void ctl_print_outcome(int code, uint32_t programs, const char *error);
/* The exit code for a refusal. */
enum ctl_exit ctl_refused(const struct gs_wire_end *end);
/* Requests the whole status. Returns as ctl_ask() does. */
int ctl_ask_status(struct ctl *ctl, struct ctl_answer *answer);
/* Reads a process id from the command line. 0 or -EINVAL. */
int ctl_pid(const char *text, int32_t *pid);

/* CLOCK_MONOTONIC, ns. */
uint64_t ctl_now(void);

/* Prints ctl->err and returns the exit code for it. */
enum ctl_exit ctl_fail(const struct ctl *ctl);
/* Flushes the output. Returns code, unless it could not be written. */
enum ctl_exit ctl_done(enum ctl_exit code);
/* "usage: gpusharectl NAME [--OPTION] ARGUMENTS" */
void ctl_print_usage(const struct ctl_command *command, FILE *out);
/* Prints an error in the command line, and the usage line. */
enum ctl_exit ctl_usage(const struct ctl_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The name of a user, or the number of one without a name. */
const char *ctl_user_name(uint32_t uid, char *buffer, size_t size);
#define CTL_CONTAINER_SIZE 80
/* Reads the names of the programs' pods from kubelet's folders: fills in answer->client_pods. */
void ctl_pods_look(struct ctl_answer *answer);
/* The pod of the program at that index. */
const struct ctl_pod *ctl_client_pod(const struct ctl_answer *answer, size_t index);
/* The container of a program; an id is shortened to 12 digits, as docker ps shows it. "": none. */
const char *ctl_container_text(const struct gs_wire_client *client, char *buffer);
const char *ctl_condition_name(uint32_t condition);
const char *ctl_note_kind(uint32_t kind);

const char *ctl_policy_name(uint32_t policy);
/* "1.5 s", "3 min" */
const char *ctl_duration(uint64_t ns, char *buffer, size_t size);

/* "17 %", or "-" for CTL_BUSY_UNKNOWN. */
const char *ctl_percent(int percent, char *buffer, size_t size);
/* The share of its time since it connected in which the program was allowed to run, per cent;
 * CTL_BUSY_UNKNOWN: it has only just connected. */
int ctl_allowed_percent(const struct gs_wire_client *client);

/* A figure as status shows it: "7.0 GiB", "1.5 s", "12". */
const char *ctl_figure_text(const struct lockd_figure *figure, uint64_t value, char *buffer,
                            size_t size);

struct json_t;
/* A JSON string of any bytes. */
struct json_t *ctl_json_text(const char *bytes);
/* json.c: makes one JSON object of the answer (docs/protocol.md). NULL: no memory. */
struct json_t *ctl_json_status(const struct ctl *ctl, const struct ctl_answer *answer);
/* Prints it. 0 or -ENOMEM. */
int ctl_json_print(const struct ctl *ctl, const struct ctl_answer *answer);
/* Prints it on one line, with the rates since `before`. */
int ctl_json_top(const struct ctl *ctl, const struct ctl_answer *now,
                 const struct ctl_answer *before, uint64_t elapsed_ns);

#endif
