/* SPDX-License-Identifier: Apache-2.0
 *
 * step.c: environment, mounts and figures of one step on one node. State: none of its own.
 */
#include "cluster/slurm/step.h"
#include "common/err.h"
#include "common/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* As whom it runs. */
struct gs_child_user {
    uid_t uid;
    gid_t gid;
    const gid_t *groups;
    size_t group_count;
};

struct gs_child {
    char *const *argv;                /* argv[0] is the full path */
    char *const *environment;         /* NULL: this process's */
    const struct gs_child_user *user; /* NULL: as this process */
};

#define GS_CHILD_SECONDS 20 /* it is killed after that */

/* Forks, gives up rights, executes. Between fork and exec only what signal-safety(7)
 * allows, since slurmstepd has threads. */

#define NOT_STARTED 126 /* exit status: it could not be executed, or not as that user */

static void become_child(const struct gs_child *child, int out)
{
    const struct gs_child_user *user = child->user;
    sigset_t none;
    const int null = open("/dev/null", O_RDWR);

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(NOT_STARTED);
    if (user != NULL && geteuid() == 0 &&
        (setgroups(user->group_count, user->groups) != 0 ||
         setresgid(user->gid, user->gid, user->gid) != 0 ||
         setresuid(user->uid, user->uid, user->uid) != 0))
        _exit(NOT_STARTED);
    alarm(GS_CHILD_SECONDS); /* stays over exec */
    execve(child->argv[0], child->argv,
           child->environment != NULL ? child->environment : environ);
    _exit(NOT_STARTED);
}

/* Reads to the end, or until the time is over: a grandchild could keep the pipe. */
static void read_output(int fd, char *out, size_t size)
{
    struct timespec now;
    time_t until;
    size_t used = 0;

    clock_gettime(CLOCK_MONOTONIC, &now);
    until = now.tv_sec + GS_CHILD_SECONDS + 1;
    while (now.tv_sec < until) {
        struct pollfd look = {.fd = fd, .events = POLLIN};
        char block[512];
        ssize_t got;

        poll(&look, 1, (int)(until - now.tv_sec) * 1000);
        got = (look.revents & (POLLIN | POLLHUP)) != 0 ? read(fd, block, sizeof block) : -1;
        if (got == 0)
            break;
        for (ssize_t i = 0; i < got && used + 1 < size; i++)
            out[used++] = block[i];
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    while (used != 0 && out[used - 1] == '\n')
        used--;
    out[used] = '\0';
}

static int wait_for(pid_t pid, const struct gs_child *child, const char *out,
                    struct gs_err *err)
{
    int status;
    pid_t done;

    do
        done = waitpid(pid, &status, 0);
    while (done < 0 && errno == EINTR);
    if (done < 0)
        return gs_err_errno(err, -errno, "%s", child->argv[0]);
    if (WIFSIGNALED(status))
        return gs_err_set(err, -EINTR, "%s: ended by signal %d%s", child->argv[0],
                          WTERMSIG(status),
                          WTERMSIG(status) == SIGALRM ? " (it took too long)" : "");
    if (WEXITSTATUS(status) == NOT_STARTED)
        return gs_err_set(err, -ENOEXEC,
                          "%s cannot be executed: is gpushare installed on this node?",
                          child->argv[0]);
    return WEXITSTATUS(status) == 0 ? 0
                                    : gs_err_set(err, -EIO, "%s: exit status %d: %.300s",
                                                 child->argv[0], WEXITSTATUS(status), out);
}

/* Its standard output (if it succeeded) or standard error (if not) goes into out, without
 * the last newline. 0: it ended with 0; -errno, with what was wrong in err. Safe in a
 * process with several threads. */
static int gs_child_run(const struct gs_child *child, char *out, size_t size,
                        struct gs_err *err)
{
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return gs_err_errno(err, -errno, "pipe");
    pid = fork();
    if (pid == 0)
        become_child(child, ends[1]);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return gs_err_errno(err, -errno, "fork");
    }
    read_output(ends[0], out, size);
    close(ends[0]);
    return wait_for(pid, child, out, err);
}

/* AdminComment, which root and Slurm's own user may write and the job's user may not. The
 * controller only replaces it, so steps that end at once may each write over what another
 * one has added: each looks afterwards and tries again. */

#define TRIES 8

/* The comment as it is, to be freed; "": none. NULL: the controller did not say. */
static char *read_comment(uint32_t job, struct gs_err *err)
{
    job_info_msg_t *answer = NULL;
    char *comment = NULL;

    if (slurm_load_job(&answer, job, SHOW_ALL) != SLURM_SUCCESS || answer == NULL) {
        gs_err_set(err, -EIO, "job %u: the controller does not show it: %s", job,
                   slurm_strerror(errno));
        return NULL;
    }
    if (answer->record_count != 0) {
        const char *now = answer->job_array[0].admin_comment;

        comment = strdup(now != NULL ? now : "");
    }
    slurm_free_job_info_msg(answer);
    if (comment == NULL)
        gs_err_set(err, -ENOENT, "job %u: the controller does not know it", job);
    return comment;
}

static int write_comment(uint32_t job, char *comment, struct gs_err *err)
{
    job_desc_msg_t change;

    slurm_init_job_desc_msg(&change);
    change.job_id = job;
    change.admin_comment = comment;
    if (slurm_update_job(&change) == SLURM_SUCCESS)
        return 0;
    return gs_err_set(err, -EIO, "job %u: its AdminComment cannot be changed: %s", job,
                      slurm_strerror(errno));
}

/* The comment with the text behind it. 0; 1: it is in there already; -errno. */
static int write_behind(uint32_t job, const char *comment, const char *text, struct gs_err *err)
{
    char longer[2 * GS_RECORD_MOST + 2]; /* each part alone is below */

    if (strstr(comment, text) != NULL)
        return 1;
    if (strlen(comment) + strlen(text) > GS_RECORD_MOST)
        return gs_err_set(err, -EFBIG,
                          "job %u: its AdminComment has no room for another step; see "
                          "slurmd's log",
                          job);
    snprintf(longer, sizeof longer, "%s%s%s", comment, *comment != '\0' ? " " : "", text);
    return write_comment(job, longer, err);
}

static int add_once(uint32_t job, const char *text, struct gs_err *err)
{
    char *comment = read_comment(job, err);
    const int code = comment != NULL ? write_behind(job, comment, text, err) : err->code;

    free(comment);
    return code;
}

int gs_record_add(uint32_t job, const char *text, struct gs_err *err)
{
    /* another length for each step, so that two that meet once do not meet again */
    const long unit = (1 + getpid() % 7) * 5000000L;
    int code = 0;

    for (long i = 0; i < TRIES && code == 0; i++) {
        const struct timespec pause = {.tv_nsec = unit * i};

        nanosleep(&pause, NULL);
        code = add_once(job, text, err);
    }
    return code > 0 ? 0 : code;
}

#define TEXT_SIZE 256

/* --- the environment --- */

/* A variable of the step, or "". */
static const char *read_variable(spank_t spank, const char *name, char *buffer, int size)
{
    buffer[0] = '\0';
    return spank_getenv(spank, name, buffer, size) == ESPANK_SUCCESS ? buffer : "";
}

/* A value that the user has set stays. */
static int set_default(spank_t spank, const char *name, const char *value, struct gs_err *err)
{
    char now[2];
    const spank_err_t known = spank_getenv(spank, name, now, sizeof now);

    if (known == ESPANK_SUCCESS || known == ESPANK_NOSPACE)
        return 0;
    return spank_setenv(spank, name, value, 1) == ESPANK_SUCCESS
               ? 0
               : gs_err_set(err, -EIO, "%s cannot be set for the step", name);
}

static void name_group(uint32_t job, uint32_t step, char *group)
{
    switch (step) {
    case SLURM_BATCH_SCRIPT:
        snprintf(group, GS_STEP_GROUP_SIZE, "slurm-%u.batch", job);
        break;
    case SLURM_INTERACTIVE_STEP:
        snprintf(group, GS_STEP_GROUP_SIZE, "slurm-%u.interactive", job);
        break;
    default:
        snprintf(group, GS_STEP_GROUP_SIZE, "slurm-%u.%u", job, step);
    }
}

static int set_environment(spank_t spank, const struct gs_share_option *option,
                           struct gs_step *step, struct gs_err *err)
{
    char text[TEXT_SIZE];
    int code = 0;

    /* an option on the command line is newer than what the environment says */
    if (option->class[0] != '\0')
        spank_setenv(spank, "GPUSHARE_CLASS", option->class, 1);
    snprintf(text, sizeof text, "%u", option->weight);
    if (option->weight != 0)
        spank_setenv(spank, "GPUSHARE_WEIGHT", text, 1);
    read_variable(spank, "GPUSHARE_GROUP", text, sizeof text);
    if (text[0] != '\0')
        step->group[0] = '\0';
    else
        code = spank_setenv(spank, "GPUSHARE_GROUP", step->group, 1) == ESPANK_SUCCESS
                   ? 0
                   : gs_err_set(err, -EIO, "GPUSHARE_GROUP cannot be set for the step");
    read_variable(spank, "SLURM_JOB_NAME", text, sizeof text);
    if (code == 0 && text[0] != '\0')
        code = set_default(spank, "GPUSHARE_NAME", text, err);
    return code;
}

int gs_step_begin(spank_t spank, const struct gs_share_option *option, struct gs_step *step,
                  struct gs_err *err)
{
    uint32_t number = 0;

    *step = (struct gs_step){0};
    if (spank_get_item(spank, S_JOB_ID, &step->job) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_STEPID, &number) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_UID, &step->uid) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_GID, &step->gid) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &step->tasks) != ESPANK_SUCCESS)
        return gs_err_set(err, -EIO, "Slurm does not provide the numbers of job and user");
    if (gethostname(step->node, sizeof step->node - 1) != 0)
        snprintf(step->node, sizeof step->node, "unknown");
    step->node[strcspn(step->node, ".")] = '\0';
    name_group(step->job, number, step->group);
    return set_environment(spank, option, step, err);
}

bool gs_step_has_shards(spank_t spank)
{
    char count[16];

    return strtol(read_variable(spank, "SLURM_SHARDS_ON_NODE", count, sizeof count), NULL, 10) >
           0;
}

/* --- the door --- */

int gs_step_mount(const struct gs_share_config *config, struct gs_err *err)
{
    char door[PATH_MAX], bind[] = "--bind", said[TEXT_SIZE];
    char *const argv[] = {door, bind, NULL};
    const struct gs_child child = {.argv = argv};

    snprintf(door, sizeof door, "%s", config->door);
    if (unshare(CLONE_NEWNS) != 0)
        return gs_err_errno(err, -errno, "no mount namespace for the task");
    /* later mounts outside appear here too; mounts made here do not appear outside */
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0)
        return gs_err_errno(err, -errno, "the task's mounts cannot be made private");
    return gs_child_run(&child, said, sizeof said, err);
}

/* --- the figures --- */

/* The variables that say where the step's daemon is. */
static void copy_variable(spank_t spank, const char *name, char *place, char **environment)
{
    char value[TEXT_SIZE];

    read_variable(spank, name, value, sizeof value);
    if (value[0] == '\0')
        return;
    snprintf(place, TEXT_SIZE + 32, "%s=%s", name, value);
    while (*environment != NULL)
        environment++;
    *environment = place;
}

int gs_step_account(spank_t spank, const struct gs_share_config *config,
                    const struct gs_step *step, char *text, size_t size, struct gs_err *err)
{
    char ctl[PATH_MAX], command[] = "account", json[] = "--json", group[GS_STEP_GROUP_SIZE];
    char socket[TEXT_SIZE + 32], folder[TEXT_SIZE + 32];
    char *const argv[] = {ctl, command, json, group, NULL};
    char *environment[3] = {NULL};
    struct gs_child_user user = {.uid = step->uid, .gid = step->gid};
    const struct gs_child child = {.argv = argv, .environment = environment, .user = &user};
    gid_t *groups = NULL;
    int count = 0;

    snprintf(ctl, sizeof ctl, "%s", config->ctl);
    snprintf(group, sizeof group, "%s", step->group);
    if (spank_get_item(spank, S_JOB_SUPPLEMENTARY_GIDS, &groups, &count) == ESPANK_SUCCESS &&
        count > 0) {
        user.groups = groups;
        user.group_count = (size_t)count;
    }
    copy_variable(spank, "GPUSHARE_SOCKET", socket, environment);
    copy_variable(spank, "XDG_RUNTIME_DIR", folder, environment);
    return gs_child_run(&child, text, size, err);
}
