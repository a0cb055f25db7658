/* SPDX-License-Identifier: Apache-2.0
 *
 * each_user.c: the lists of other users. Each is read, and its files restored, in a process that
 * has become that user before it opens anything, as undo_entry.c does for one file. No state; one
 * thread.
 */
#include "rewriter/undo/each_user.h"
#include "rewriter/undo/undo.h"
#include "rewriter/elf/say.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Makes this process one of that user. False if any of it failed; then it must end. */
static bool become_user(uid_t user, gid_t group)
{
    const struct passwd *entry = getpwuid(user);

    if (entry != NULL ? initgroups(entry->pw_name, entry->pw_gid) != 0
                      : setgroups(0, NULL) != 0)
        return false;
    if (setgid(entry != NULL ? entry->pw_gid : group) != 0 || setuid(user) != 0)
        return false;
    unsetenv("XDG_STATE_HOME");
    unsetenv("GPUSHARE_STATE");
    if (entry != NULL ? setenv("HOME", entry->pw_dir, 1) != 0 : unsetenv("HOME") != 0)
        return false;
    return user != 0 && geteuid() == user && getuid() == user && setuid(0) != 0;
}

bool elf_undo_call_as(uid_t user, gid_t group, elf_undo_call *call,
                      const struct elf_listed *entry, const struct elf_options *options,
                      enum elf_exit *result)
{
    int status = 0;
    bool ended;
    pid_t child;

    fflush(NULL);
    child = fork();
    if (child == 0) {
        const enum elf_exit its =
            become_user(user, group) ? call(entry, options) : ELF_EXIT_FAILED;

        fflush(NULL);
        _exit((int)its);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    ended = child > 0 && WIFEXITED(status);
    *result = ended ? (enum elf_exit)WEXITSTATUS(status) : ELF_EXIT_FAILED;
    return ended;
}

static enum elf_exit undo_own_list(const struct elf_listed *none,
                                   const struct elf_options *options)
{
    (void)none;
    return elf_undo_own(options);
}

struct user {
    uid_t user;
    gid_t group;
    struct user *next;
};

/* All of them before the first child is made, which reads the same table. */
static struct user *list_users(void)
{
    struct user *list = NULL, *more;
    const struct passwd *entry;

    setpwent();
    while ((entry = getpwent()) != NULL) {
        if (entry->pw_uid == 0 || strcmp(entry->pw_dir, "/") == 0 ||
            access(entry->pw_dir, F_OK) != 0)
            continue;
        more = malloc(sizeof *more);
        if (more == NULL)
            break;
        *more = (struct user){.user = entry->pw_uid, .group = entry->pw_gid, .next = list};
        list = more;
    }
    endpwent();
    return list;
}

enum elf_exit elf_undo_each_user(const struct elf_options *options)
{
    enum elf_exit result = ELF_EXIT_NOTHING, its;
    struct user *list = list_users(), *next;

    for (; list != NULL; list = next) {
        next = list->next;
        elf_undo_call_as(list->user, list->group, undo_own_list, NULL, options, &its);
        result = elf_undo_both(result, its);
        free(list);
    }
    return result;
}
