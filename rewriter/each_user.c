/* SPDX-License-Identifier: Apache-2.0
 *
 * each_user.c: the lists of other users. Each is read, and its files restored, in a process that
 * has become that user before it opens anything, as undo_entry.c does for one file. No state; one
 * thread.
 */
#include "rewriter/each_user.h"
#include "rewriter/elf/say.h"

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

#define HOMES            "/home"
#define PATIENCE_SECONDS 3600 /* a user's file system may never answer */

/* Makes this process one of that user; home is for a user that is not in the table. False if any
 * step failed; then the process must end. */
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

/* Adds the owners of folders in /home. A directory service need not list all of its users (sssd:
 * enumerate = false). */
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
