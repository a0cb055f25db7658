/* SPDX-License-Identifier: Apache-2.0
 *
 * undo_entry.c: one listed file or folder: its present state, and how it is restored.
 *
 * The path of a listed file had no link in it. The owner of one of its folders may have put one
 * there since. So the path is walked folder by folder without following links, and root restores
 * a file of another user in a process that has become that user. The undo note must have the
 * checksum that was listed, and so must the restored bytes (job/write.c). No state; one thread.
 */
#include "rewriter/undo_entry.h"
#include "rewriter/elf/say.h"
#include "rewriter/tree/tree.h"
#include "rewriter/job/write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The lists of other users. Each is read, and its files restored, in a process that has
 * become that user before it opens anything, as undo_entry.c does for one file. */

#define HOMES            "/home"
#define PATIENCE_SECONDS 3600 /* a user's file system may never answer */

/* Makes this process one of that user; home is for a user that is not in the table. False
 * if any step failed; then the process must end. */
static bool become_user(uid_t user, gid_t group, const char *home)
{
    const struct passwd *entry = getpwuid(user);

    if (entry != NULL ? initgroups(entry->pw_name, entry->pw_gid) != 0
                      : setgroups(0, NULL) != 0)
        return false;
    if (setgid(entry != NULL ? entry->pw_gid : group) != 0 || setuid(user) != 0)
        return false;
    unsetenv("XDG_STATE_HOME");
    unsetenv("GPUSHARE_STATE");
    home = entry != NULL ? entry->pw_dir : home;
    if (home != NULL ? setenv("HOME", home, 1) != 0 : unsetenv("HOME") != 0)
        return false;
    return user != 0 && geteuid() == user && getuid() == user && setuid(0) != 0;
}

/* The status of a child that has ended; that of a killed one if none can be had. Users may stop
 * their processes, which must not hold root up. */
static int await_child(pid_t child)
{
    int status = 0;
    pid_t ended;

    do {
        ended = waitpid(child, &status, WUNTRACED);
        if (ended == child && WIFSTOPPED(status))
            kill(child, SIGKILL);
    } while (ended == child ? WIFSTOPPED(status) : errno == EINTR);
    return ended == child ? status : SIGKILL;
}

/* True if the process ended by itself, with a result. */
static bool call_as(uid_t user, gid_t group, const char *home, elf_undo_call *call,
                    const struct elf_listed *entry, const struct elf_options *options,
                    enum elf_exit *result)
{
    int status = 0;
    bool ended;
    pid_t child;

    fflush(NULL);
    signal(SIGCHLD, SIG_DFL); /* if it is ignored, a child leaves no status */
    child = fork();
    if (child == 0) {
        enum elf_exit its = ELF_EXIT_FAILED;

        signal(SIGTSTP, SIG_IGN);
        alarm(PATIENCE_SECONDS);
        if (become_user(user, group, home))
            its = call(entry, options);
        else
            elf_say(stderr, "gpushare-patch: cannot act as user %u\n", (unsigned)user);
        fflush(NULL);
        _exit((int)its);
    }
    if (child > 0)
        status = await_child(child);
    ended = child > 0 && WIFEXITED(status);
    *result = ended ? (enum elf_exit)WEXITSTATUS(status) : ELF_EXIT_FAILED;
    return ended;
}

bool elf_undo_call_as(uid_t user, gid_t group, elf_undo_call *call,
                      const struct elf_listed *entry, const struct elf_options *options,
                      enum elf_exit *result)
{
    return call_as(user, group, NULL, call, entry, options, result);
}

enum elf_exit elf_undo_both(enum elf_exit a, enum elf_exit b)
{
    if (a == ELF_EXIT_NOTHING || b == ELF_EXIT_NOTHING)
        return a == ELF_EXIT_NOTHING ? b : a;
    return elf_exit_graver(a, b);
}

struct user {
    uid_t user;
    gid_t group;
    char *home;
    struct user *next;
};

static bool is_in(const struct user *list, uid_t user)
{
    while (list != NULL && list->user != user)
        list = list->next;
    return list != NULL;
}

/* False if there is no memory. */
static bool add_user(struct user **list, uid_t user, gid_t group, const char *home)
{
    struct user *more = malloc(sizeof *more);

    if (more == NULL)
        return false;
    *more = (struct user){user, group, strdup(home), *list};
    if (more->home == NULL) {
        free(more);
        return false;
    }
    *list = more;
    return true;
}

static bool add_named(struct user **list)
{
    const struct passwd *entry;
    bool good = true;

    setpwent();
    while (good && (entry = getpwent()) != NULL) {
        if (entry->pw_uid != 0 && strcmp(entry->pw_dir, "/") != 0 &&
            access(entry->pw_dir, F_OK) == 0)
            good = add_user(list, entry->pw_uid, entry->pw_gid, entry->pw_dir);
    }
    endpwent();
    return good;
}

/* Adds the owners of folders in /home. A directory service need not list all of its users
 * (sssd: enumerate = false). */
static bool add_owners(struct user **list)
{
    DIR *homes = opendir(HOMES);
    const struct dirent *entry;
    char path[sizeof HOMES + NAME_MAX + 1];
    struct stat st;
    bool good = true;

    while (homes != NULL && good && (entry = readdir(homes)) != NULL) {
        if (entry->d_name[0] == '.' ||
            fstatat(dirfd(homes), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISDIR(st.st_mode) || st.st_uid == 0 || is_in(*list, st.st_uid))
            continue;
        snprintf(path, sizeof path, HOMES "/%s", entry->d_name);
        good = add_user(list, st.st_uid, st.st_gid, path);
    }
    if (homes != NULL)
        closedir(homes);
    return good;
}

/* Lists all users before the first child is made, which reads the same table. */
enum elf_exit elf_undo_each_user(elf_undo_call *call, const struct elf_options *options)
{
    enum elf_exit result = ELF_EXIT_NOTHING, its;
    struct user *list = NULL, *next;

    if (!add_named(&list) || !add_owners(&list)) {
        elf_say(stderr, "gpushare-patch: no memory for the list of users\n");
        result = ELF_EXIT_FAILED;
    }
    for (; list != NULL; list = next) {
        next = list->next;
        if (!call_as(list->user, list->group, list->home, call, NULL, options, &its))
            elf_say(stderr, "gpushare-patch: the process of user %u failed\n",
                    (unsigned)list->user);
        result = elf_undo_both(result, its);
        free(list->home);
        free(list);
    }
    return result;
}

static enum elf_undo_state judge_job(const struct elf_job *job, int ret,
                                     const struct elf_listed *entry)
{
    if (ret == -ENOENT || ret == -ENOTDIR)
        return ELF_UNDO_GONE;
    if (ret == -ELOOP || ret == -ENOEXEC)
        return ELF_UNDO_REPLACED; /* by a link or folder, or a link is on the way */
    if (ret != 0)
        return ELF_UNDO_HIDDEN;
    if (job->patched == ELF_NOTE_NONE)
        return ELF_UNDO_REPLACED;
    if (job->note.lost.code != 0 ||
        memcmp(job->note.head.original_checksum, entry->original, sizeof entry->original) != 0)
        return ELF_UNDO_OTHER;
    return ELF_UNDO_PATCHED;
}

enum elf_undo_state elf_undo_look(const struct elf_listed *entry, uid_t *owner, gid_t *group)
{
    struct elf_job *job = calloc(1, sizeof *job);
    struct elf_root everything;
    const struct elf_options options = {.within.root = &everything};
    enum elf_undo_state state = ELF_UNDO_HIDDEN;

    if (job != NULL && elf_root_open(&everything, "/", NULL) == 0) {
        state = judge_job(job, elf_job_open(job, entry->path, &options, NULL), entry);
        if (job->fd >= 0 && owner != NULL)
            *owner = job->stat.st_uid;
        if (job->fd >= 0 && group != NULL)
            *group = job->stat.st_gid;
        elf_job_deinit(job);
        elf_root_close(&everything);
    }
    free(job);
    return state;
}

static bool is_same_library(const char *a, const char *b)
{
    struct stat x, y;

    return strcmp(a, b) == 0 || (stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
                                 x.st_ino == y.st_ino);
}

bool elf_undo_is_for_another(const struct elf_listed *entry, const char *runtime)
{
    struct elf_job *job = calloc(1, sizeof *job);
    struct elf_root everything;
    const struct elf_options options = {.within.root = &everything};
    char its[PATH_MAX] = "";

    if (job != NULL && elf_root_open(&everything, "/", NULL) == 0) {
        if (elf_job_open(job, entry->path, &options, NULL) == 0 &&
            job->patched == ELF_NOTE_FOUND)
            elf_note_value(job->note.text, "runtime", its, sizeof its);
        elf_job_deinit(job);
        elf_root_close(&everything);
    }
    free(job);
    return its[0] != '\0' && !is_same_library(its, runtime);
}

/* The file is opened and checked once more, so that the file which is restored is the one that
 * was checked. */
static enum elf_exit restore_here(const struct elf_listed *entry,
                                  const struct elf_options *options)
{
    struct elf_job *job = calloc(1, sizeof *job);
    struct elf_options how = *options;
    struct elf_root everything = {.fd = -1};
    struct gs_err err = {0};
    int ret = job != NULL ? elf_root_open(&everything, "/", &err) : -ENOMEM;

    how.within.root = &everything;
    how.restore = true;
    ret = ret ?: elf_job_open(job, entry->path, &how, &err);
    if (ret == 0 && judge_job(job, 0, entry) != ELF_UNDO_PATCHED)
        ret = gs_err_set(&err, -ESTALE, "%s: was changed meanwhile; it is left alone",
                         entry->path);
    if (ret == 0 && geteuid() == 0 && job->stat.st_uid != 0)
        ret = gs_err_set(&err, -ESTALE, "%s: has got another owner meanwhile; it is left alone",
                         entry->path);
    ret = ret ?: elf_job_restore(job, &err);
    if (ret == 0)
        elf_say(stdout, "%s: %s\n", entry->path,
                options->dry_run ? "would be restored" : "restored");
    else
        elf_say(stderr, "gpushare-patch: %s\n", err.code != 0 ? err.text : "no memory");
    if (job != NULL)
        elf_job_deinit(job);
    elf_root_close(&everything);
    free(job);
    return ret == 0 ? ELF_EXIT_DONE : ELF_EXIT_FAILED;
}

static enum elf_exit restore_root_here(const struct elf_listed *entry,
                                       const struct elf_options *options)
{
    struct elf_options how = *options;

    how.folder.listed = true;
    how.restore = true;
    how.lists.restore_all = false;
    how.folder.jobs = 1;
    how.within.programs_only = entry->venv;
    *(entry->venv ? &how.folder.venv : &how.folder.tree) = entry->root;
    return elf_tree(&how);
}

static enum elf_exit call_as_owner(uid_t owner, gid_t group, elf_undo_call *call,
                                   const struct elf_listed *entry,
                                   const struct elf_options *options)
{
    enum elf_exit result;

    if (geteuid() != 0 || owner == 0)
        return call(entry, options);
    if (!elf_undo_call_as(owner, group, call, entry, options, &result))
        elf_say(stderr, "gpushare-patch: %s: the process of user %u failed\n", entry->path,
                (unsigned)owner);
    return result;
}

enum elf_exit elf_undo_restore(const struct elf_listed *entry,
                               const struct elf_options *options)
{
    uid_t owner = 0;
    gid_t group = 0;

    elf_undo_look(entry, &owner, &group);
    return call_as_owner(owner, group, restore_here, entry, options);
}

enum elf_exit elf_undo_restore_root(const struct elf_listed *entry,
                                    const struct elf_options *options)
{
    struct elf_root folder;
    struct stat st;
    const bool found =
        elf_root_open_resolved(&folder, entry->root, NULL) == 0 && fstat(folder.fd, &st) == 0;

    elf_root_close(&folder);
    if (!found)
        return ELF_EXIT_NOTHING; /* gone, or a link leads elsewhere now */
    return call_as_owner(st.st_uid, st.st_gid, restore_root_here, entry, options);
}
