/* SPDX-License-Identifier: Apache-2.0
 *
 * spank_gpushare.c: the SPANK plugin's callbacks (slurm/spank.h says in which process and with which
 * rights each runs), and the step that they serve. State: the configuration, the option and the
 * step, of the one process that the plugin is loaded in.
 */
#pragma GCC visibility push(default) /* what Slurm looks up */
#include <slurm/spank.h>
SPANK_PLUGIN(gpushare, 1)
#pragma GCC visibility pop

#include "cluster/slurm/share_option.h"
#include "common/fd.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>

#define GS_RECORD_MOST 16384 /* characters that steps may add to a job's AdminComment */

#define GS_STEP_GROUP_SIZE 32 /* as in the protocol */

struct gs_step {
    uint32_t job;
    uid_t uid;
    gid_t gid;
    /* of its programs; "": the user has named one, or wants none */
    char group[GS_STEP_GROUP_SIZE];
    char node[64];
    uint32_t tasks; /* on this node */
};

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
static int add_once(uint32_t job, const char *text, struct gs_err *err)
{
    char *comment = read_comment(job, err);
    char longer[2 * GS_RECORD_MOST + 2]; /* each part alone is below */
    int code = comment == NULL ? err->code : strstr(comment, text) != NULL;

    if (code == 0 && strlen(comment) + strlen(text) > GS_RECORD_MOST)
        code = gs_err_set(err, -EFBIG,
                          "job %u: its AdminComment has no room for another step; see "
                          "slurmd's log",
                          job);
    if (code == 0) {
        snprintf(longer, sizeof longer, "%s%s%s", comment, *comment != '\0' ? " " : "", text);
        code = write_comment(job, longer, err);
    }
    free(comment);
    return code;
}

/* Adds the text, which has no newline, to the job's AdminComment. 0 or -errno. */
static int gs_record_add(uint32_t job, const char *text, struct gs_err *err)
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
    spank_err_t known;
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
    if (code != 0 || text[0] == '\0')
        return code;
    known = spank_setenv(spank, "GPUSHARE_NAME", text, 0); /* the user's name stays */
    return known == ESPANK_SUCCESS || known == ESPANK_ENV_EXISTS
               ? 0
               : gs_err_set(err, -EIO, "GPUSHARE_NAME cannot be set for the step");
}

/* Reads what Slurm says of the step, and sets its programs' environment. 0 or -errno. */
static int gs_step_begin(spank_t spank, const struct gs_share_option *option,
                         struct gs_step *step, struct gs_err *err)
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

/* --- the door --- */

/* In a task, before it gives up root: mounts the door in a namespace of its own. 0 or
 * -errno. */
static int gs_step_mount(const struct gs_share_config *config, struct gs_err *err)
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

/* After the tasks: asks the daemon what they have used, into text. 0 or -errno. */
static int gs_step_account(spank_t spank, const struct gs_share_config *config,
                           const struct gs_step *step, char *text, size_t size,
                           struct gs_err *err)
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

#define ACCOUNT_SIZE 512

static struct {
    struct gs_share_config config;
    struct gs_share_option option;
    struct gs_step step;
    bool given;     /* --gpushare stands on the command line */
    bool shares;    /* this step's programs share */
    bool told;      /* the figures */
    uint32_t ended; /* tasks */
} plugin;

static int complain_of(const struct gs_err *err)
{
    slurm_error("gpushare: %s", err->text);
    return -1;
}

static int take_option(int value, const char *text, int remote)
{
    struct gs_err err = {0};

    (void)value, (void)remote;
    /* Slurm writes an option without an argument as "(null)" for the processes of the step */
    if (text != NULL && strcmp(text, "(null)") == 0)
        text = NULL;
    if (gs_share_option_parse(text, &plugin.option, &err) != 0)
        return complain_of(&err);
    plugin.given = true;
    return 0;
}

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
    static char name[] = "gpushare", argument[] = "class[:weight]",
                usage[] = "share the GPU by gpushare; class: auto, interactive, batch or "
                          "background; weight: 1 to 10000 (100)";
    static struct spank_option option = {
        .name = name, .arginfo = argument, .usage = usage, .has_arg = 2, .cb = take_option};
    struct gs_err err = {0};

    if (gs_share_config_parse(argc, argv, &plugin.config, &err) != 0)
        return complain_of(&err);
    return spank_option_register(spank, &option) == ESPANK_SUCCESS ? 0 : -1;
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
    struct gs_err err = {0};
    char count[16];

    (void)argc, (void)argv;
    if (spank_remote(spank) != 1)
        return 0;
    plugin.shares = plugin.given ||
                    (plugin.config.shards &&
                     strtol(read_variable(spank, "SLURM_SHARDS_ON_NODE", count, sizeof count),
                            NULL, 10) > 0);
    if (!plugin.shares)
        return 0;
    return gs_step_begin(spank, &plugin.option, &plugin.step, &err) == 0 ? 0
                                                                         : complain_of(&err);
}

int slurm_spank_task_init_privileged(spank_t spank, int argc, char **argv)
{
    struct gs_err err = {0};

    (void)spank, (void)argc, (void)argv;
    return !plugin.shares || gs_step_mount(&plugin.config, &err) == 0 ? 0 : complain_of(&err);
}

/* Records the sums of an ended step. No failure here may make the job fail. */
static void tell_account(spank_t spank)
{
    char account[ACCOUNT_SIZE], text[ACCOUNT_SIZE + 128];
    struct gs_err err = {0};

    plugin.told = true;
    if (gs_step_account(spank, &plugin.config, &plugin.step, account, sizeof account, &err) !=
        0) {
        slurm_info("gpushare: step %s: no figures: %s", plugin.step.group, err.text);
        return;
    }
    snprintf(text, sizeof text, "gpushare@%s=%s", plugin.step.node, account);
    slurm_info("%s", text);
    if (plugin.config.record && gs_record_add(plugin.step.job, text, &err) != 0)
        slurm_info("gpushare: step %s: not in the job's record: %s", plugin.step.group,
                   err.text);
}

/* After the last task of this node: later, the controller may take the job as finished, and
 * takes no comment any more. */
int slurm_spank_task_exit(spank_t spank, int argc, char **argv)
{
    (void)argc, (void)argv;
    plugin.ended++;
    if (plugin.shares && plugin.step.group[0] != '\0' && plugin.ended == plugin.step.tasks)
        tell_account(spank);
    return 0;
}

/* A step whose tasks did not all begin. */
int slurm_spank_exit(spank_t spank, int argc, char **argv)
{
    (void)argc, (void)argv;
    if (plugin.shares && plugin.step.group[0] != '\0' && plugin.ended != 0 && !plugin.told)
        tell_account(spank);
    return 0;
}
