/* SPDX-License-Identifier: Apache-2.0
 *
 * undo.c: the lists of patched files: shown, restored, patched again. No state; one thread.
 */
#include "rewriter/undo.h"
#include "rewriter/elf/say.h"
#include "rewriter/tree/tree.h"
#include "common/fd.h"
#include "common/same.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/wait.h>

/* The present state of a listed file. */
enum elf_undo_state {
    ELF_UNDO_PATCHED,  /* as it was listed */
    ELF_UNDO_GONE,     /* nothing is there */
    ELF_UNDO_REPLACED, /* another file or a link, which is not patched */
    ELF_UNDO_OTHER,    /* patched, but with another original than was listed, or damaged */
    ELF_UNDO_HIDDEN,   /* this user cannot look at it */
};

typedef enum elf_exit elf_undo_call(const struct elf_listed *entry,
                                    const struct elf_options *options);

/* The path of a listed file had no link in it. The owner of one of its folders may have put
 * one there since. So the path is walked folder by folder without following links, and root
 * restores a file of another user in a process that has become that user. The undo note
 * must have the checksum that was listed, and so must the restored bytes (job/act.c). */

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

/* Calls it in a child process that has become that user for good: user, group, groups, HOME.
 * Says if the process did not end by itself. Root only. entry: NULL: all that the user has listed.
 * home: for a user that is not in the table; NULL: none. */
static enum elf_exit call_as(uid_t user, gid_t group, const char *home, elf_undo_call *call,
                             const struct elf_listed *entry, const struct elf_options *options)
{
    int status = 0;
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
    if (child > 0 && WIFEXITED(status))
        return (enum elf_exit)WEXITSTATUS(status);
    elf_say(stderr, "gpushare-patch: %s%sthe process of user %u failed\n",
            entry != NULL ? entry->path : "", entry != NULL ? ": " : "", (unsigned)user);
    return ELF_EXIT_FAILED;
}

/* The worse of two results; "nothing to do" is better than "done". */
static enum elf_exit elf_undo_both(enum elf_exit a, enum elf_exit b)
{
    if (a == ELF_EXIT_NOTHING || b == ELF_EXIT_NOTHING)
        return a == ELF_EXIT_NOTHING ? b : a;
    return elf_exit_graver(a, b);
}

struct user {
    uid_t user;
    gid_t group;
    struct user *next;
    char home[];
};

/* False if there is no memory. */
static bool add_user(struct user **list, uid_t user, gid_t group, const char *home)
{
    struct user *more = malloc(sizeof *more + strlen(home) + 1);

    if (more == NULL)
        return false;
    *more = (struct user){user, group, *list};
    memcpy(more->home, home, strlen(home) + 1);
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
        const struct user *known = *list;

        if (entry->d_name[0] == '.' ||
            fstatat(dirfd(homes), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISDIR(st.st_mode) || st.st_uid == 0)
            continue;
        while (known != NULL && known->user != st.st_uid)
            known = known->next;
        snprintf(path, sizeof path, HOMES "/%s", entry->d_name);
        good = known != NULL || add_user(list, st.st_uid, st.st_gid, path);
    }
    if (homes != NULL)
        closedir(homes);
    return good;
}

/* Lists all users before the first child is made, which reads the same table. */
static enum elf_exit elf_undo_each_user(elf_undo_call *call, const struct elf_options *options)
{
    enum elf_exit result = ELF_EXIT_NOTHING;
    struct user *list = NULL, *next;

    if (!add_named(&list) || !add_owners(&list)) {
        elf_say(stderr, "gpushare-patch: no memory for the list of users\n");
        result = ELF_EXIT_FAILED;
    }
    for (; list != NULL; list = next) {
        next = list->next;
        result = elf_undo_both(
            result, call_as(list->user, list->group, list->home, call, NULL, options));
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

/* A listed file as it is now. */
struct found {
    enum elf_undo_state state;
    uid_t owner; /* these two are -1 if nothing can be opened there */
    gid_t group;
    char runtime[PATH_MAX]; /* the library for which it is patched, or "" */
};

/* Looks at it without following links. */
static void look_at(const struct elf_listed *entry, struct found *found)
{
    struct elf_job *job = calloc(1, sizeof *job);
    struct elf_root everything;
    const struct elf_options options = {.within.root = &everything};

    *found = (struct found){ELF_UNDO_HIDDEN, (uid_t)-1, (gid_t)-1, ""};
    if (job != NULL && elf_root_open(&everything, "/", NULL) == 0) {
        found->state = judge_job(job, elf_job_open(job, entry->path, &options, NULL), entry);
        if (job->fd >= 0) {
            found->owner = job->stat.st_uid;
            found->group = job->stat.st_gid;
        }
        if (job->patched == ELF_NOTE_FOUND)
            elf_note_value(job->note.text, "runtime", found->runtime, sizeof found->runtime);
        elf_job_deinit(job);
        elf_root_close(&everything);
    }
    free(job);
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

/* Does what --restore-all or --repatch asks for to the folder that --venv or --tree was given. */
static enum elf_exit act_on_root(const struct elf_listed *entry,
                                 const struct elf_options *options)
{
    struct elf_options how = *options;

    how.folder.listed = true;
    how.restore = options->lists.restore_all;
    how.lists = (struct elf_list_options){.all_users = options->lists.all_users};
    how.any = false;
    how.folder.jobs = 1;
    how.within.programs_only = entry->venv;
    *(entry->venv ? &how.folder.venv : &how.folder.tree) = entry->root;
    return elf_tree(&how);
}

/* Acts as the owner if root called. */
static enum elf_exit call_as_owner(uid_t owner, gid_t group, elf_undo_call *call,
                                   const struct elf_listed *entry,
                                   const struct elf_options *options)
{
    return geteuid() != 0 || owner == 0 ? call(entry, options)
                                        : call_as(owner, group, NULL, call, entry, options);
}

/* Files that the removal of a package leaves if patched files could not be restored: a stub
 * in the library's place, and a copy of this tool to restore them with. The file `stub`
 * beside the list has the full path of each, one a line. */

#define STUB_MARK "gpushare-stub-of-a-removed-library" /* runtime/calls/stub.c has it */
#define MOST      (1 << 20)                            /* bytes of a stub */

static bool name_list(char path[PATH_MAX])
{
    char folder[PATH_MAX];

    return elf_registry_folder(folder) &&
           snprintf(path, PATH_MAX, "%s/stub", folder) < PATH_MAX;
}

/* Whether the file is a stub: a new installation may have put its library there. */
static bool is_stub(const struct elf_entry *entry)
{
    GS_CLOSE_FD int fd =
        openat(entry->folder, entry->base, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char *bytes = malloc(MOST);
    ssize_t n = fd >= 0 && bytes != NULL ? read(fd, bytes, MOST) : -1;
    const bool marked = n > 0 && memmem(bytes, (size_t)n, STUB_MARK, sizeof STUB_MARK) != NULL;

    free(bytes);
    return marked;
}

/* Removes a stub, or this tool. */
static void drop_file(const struct elf_root *everything, const char *path)
{
    struct elf_entry entry;
    struct stat st, own;

    if (elf_entry_open(&entry, everything, path, NULL) == 0 &&
        (is_stub(&entry) || (fstatat(entry.folder, entry.base, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                             stat("/proc/self/exe", &own) == 0 && gs_same_inode(&st, &own))) &&
        unlinkat(entry.folder, entry.base, 0) != 0)
        elf_say(stderr, "gpushare-patch: %s: cannot be removed: %s\n", path, strerror(errno));
    elf_entry_close(&entry);
}

/* Removes the stub, and the files that were left with it. */
static void drop_stub(void)
{
    struct elf_root everything;
    char list[PATH_MAX], line[PATH_MAX + 2];
    FILE *from = name_list(list) ? fopen(list, "re") : NULL;
    char *end;

    if (from == NULL)
        return;
    if (elf_root_open(&everything, "/", NULL) == 0) {
        while (fgets(line, sizeof line, from) != NULL) {
            line[strcspn(line, "\n")] = '\0';
            if (line[0] == '/')
                drop_file(&everything, line);
        }
        elf_root_close(&everything);
        unlink(list);
        *strrchr(list, '/') = '\0';
        end = strrchr(list, '\0');
        snprintf(end, (size_t)(list + sizeof list - end), "/patched");
        if (rmdir(list) == 0) {
            *end = '\0';
            rmdir(list);
        }
        elf_say(stdout, "the last patched file is restored; nothing of gpushare is left\n");
    }
    fclose(from);
}

/* One line, from which `printf %b` makes the name again: a backslash and control characters
 * become \0 and three octal digits. */
static void print_name(const char *name)
{
    for (const unsigned char *p = (const unsigned char *)name; *p != '\0'; p++) {
        if (*p < ' ' || *p == 0x7f || *p == '\\')
            printf("\\0%03o", *p);
        else
            putchar(*p);
    }
    putchar('\n');
}

static enum elf_exit show_list(const struct elf_registry *registry,
                               const struct elf_options *options)
{
    static const char *const names[] = {[ELF_UNDO_PATCHED] = "patched",
                                        [ELF_UNDO_GONE] = "gone",
                                        [ELF_UNDO_REPLACED] = "replaced",
                                        [ELF_UNDO_OTHER] = "changed",
                                        [ELF_UNDO_HIDDEN] = "hidden"};
    struct found found;

    gs_each (entry, registry->entries, registry->count) {
        if (options->quiet) {
            print_name(entry->path);
            continue;
        }
        look_at(entry, &found);
        elf_say(stdout, "%-9s %s\n", names[found.state], entry->path);
    }
    return ELF_EXIT_DONE;
}

/* Restores one entry, or reports why it cannot. */
static enum elf_exit settle_entry(const struct elf_listed *entry,
                                  const struct elf_options *options)
{
    enum elf_exit result = ELF_EXIT_DONE;
    struct gs_err err = {0};
    struct found found;

    look_at(entry, &found);
    if (found.state == ELF_UNDO_PATCHED && !(options->dry_run && entry->root[0] != '\0')) {
        result = call_as_owner(found.owner, found.group, restore_here, entry, options);
    } else if (found.state == ELF_UNDO_OTHER || found.state == ELF_UNDO_HIDDEN) {
        elf_say(
            stderr, "gpushare-patch: %s: %s; it is left alone and stays listed\n", entry->path,
            found.state == ELF_UNDO_OTHER ? "is patched, but not as it was listed (restore it "
                                            "by hand: --restore)"
                                          : "cannot be looked at");
        return ELF_EXIT_FAILED;
    } else if (entry->root[0] == '\0') {
        elf_say(stdout, "%s: %s; nothing to restore\n", entry->path,
                found.state == ELF_UNDO_GONE ? "is gone (removed or moved)"
                                             : "was replaced (by an upgrade?)");
    }
    if (result == ELF_EXIT_DONE && !options->dry_run &&
        elf_registry_forget(entry->path, &err) != 0)
        elf_say(stderr, "gpushare-patch: %s\n", err.text);
    return result;
}

/* Restores the folders that --venv or --tree was given first, each once: that restores links,
 * manifests and RECORD files as well. No link is followed. */
static enum elf_exit restore_list(const struct elf_registry *registry,
                                  const struct elf_options *options)
{
    enum elf_exit result = ELF_EXIT_DONE;

    for (size_t i = 0; i < registry->count; i++) {
        const struct elf_listed *entry = &registry->entries[i];
        bool known = entry->root[0] == '\0';
        struct elf_root folder;
        struct stat st;

        for (size_t j = 0; j < i && !known; j++)
            known = strcmp(registry->entries[j].root, entry->root) == 0;
        if (known)
            continue;
        if (elf_root_open_resolved(&folder, entry->root, NULL) == 0 &&
            fstat(folder.fd, &st) == 0)
            call_as_owner(st.st_uid, st.st_gid, act_on_root, entry, options);
        elf_root_close(&folder); /* else it is gone, or a link leads elsewhere now */
    }
    for (size_t i = 0; i < registry->count; i++)
        result = elf_undo_both(result, settle_entry(&registry->entries[i], options));
    return result;
}

/* Patches an entry that an upgrade has overwritten: a single file by its path, a folder as a
 * whole. */
static enum elf_exit repatch_entry(const struct elf_listed *entry,
                                   const struct elf_options *options)
{
    struct elf_root everything = {.fd = -1};
    struct elf_options again = *options;
    enum elf_exit result = ELF_EXIT_FAILED;
    struct gs_err err = {0};

    if (entry->root[0] != '\0')
        return act_on_root(entry, options);
    again.any = true; /* it was patched before */
    again.lists.repatch = false;
    again.within.root = &everything;
    if (elf_root_open(&everything, "/", &err) == 0)
        result = elf_act(entry->path, &again, stdout, stderr, NULL);
    elf_root_close(&everything);
    return result;
}

static enum elf_exit repatch_list(const struct elf_registry *registry,
                                  const struct elf_options *options)
{
    const char *last = "";
    enum elf_exit result = ELF_EXIT_DONE;

    gs_each (entry, registry->entries, registry->count) {
        struct found found;

        look_at(entry, &found);
        if (found.state != ELF_UNDO_REPLACED ||
            (entry->root[0] != '\0' && strcmp(entry->root, last) == 0))
            continue;
        if (found.owner != geteuid() && found.owner != (uid_t)-1) {
            elf_say(stderr,
                    "gpushare-patch: %s: was replaced, and belongs to user %u: it is not "
                    "patched again\n",
                    entry->path, (unsigned)found.owner);
            result = ELF_EXIT_FAILED;
            continue;
        }
        last = entry->root[0] != '\0' ? entry->root : last;
        result = elf_undo_both(result, repatch_entry(entry, options));
    }
    return result;
}

/* With --runtime, files that use another installation's library are left out, whatever the path to
 * it. And a user's list may name any path: only files that belong to that user concern others, since
 * root is not to be kept from the removal of a package by the rest. */
static void leave_out(struct elf_registry *registry, const struct elf_options *options)
{
    const char *runtime = options->lists.repatch ? NULL : options->runtime;
    const bool by_owner = options->lists.all_users && geteuid() != 0;
    size_t kept = 0;

    for (size_t i = 0; i < registry->count && (runtime != NULL || by_owner); i++) {
        struct found found;

        look_at(&registry->entries[i], &found);
        if ((runtime == NULL || found.runtime[0] == '\0' ||
             strcmp(found.runtime, runtime) == 0 || gs_same_file(found.runtime, runtime)) &&
            (!by_owner || (found.state != ELF_UNDO_HIDDEN && found.owner == geteuid())))
            registry->entries[kept++] = registry->entries[i];
    }
    if (runtime != NULL || by_owner)
        registry->count = kept;
}

static enum elf_exit undo_own(const struct elf_listed *none, const struct elf_options *options)
{
    enum elf_exit result = ELF_EXIT_NOTHING;
    struct elf_registry registry;
    struct gs_err err = {0};

    (void)none;
    if (elf_registry_read(&registry, &err) != 0) {
        elf_say(stderr, "gpushare-patch: %s\n", err.text);
        result = ELF_EXIT_FAILED;
    }
    leave_out(&registry, options);
    if (registry.count > 0) {
        result = options->lists.list          ? show_list(&registry, options)
                 : options->lists.restore_all ? restore_list(&registry, options)
                                              : repatch_list(&registry, options);
    }
    elf_registry_deinit(&registry);
    return result;
}

enum elf_exit elf_undo(const struct elf_options *options)
{
    bool root = geteuid() == 0;
    char path[PATH_MAX];
    /* a removed gpushare has left a stub; with --runtime, other installations' files may need it */
    bool stub = options->lists.restore_all && !options->dry_run && options->runtime == NULL &&
                name_list(path) && access(path, R_OK) == 0;
    enum elf_exit result = undo_own(NULL, options);

    if (options->lists.all_users || (stub && root)) /* the stub serves all users */
        result = elf_undo_both(result, elf_undo_each_user(undo_own, options));
    if (stub && (result == ELF_EXIT_DONE || result == ELF_EXIT_NOTHING))
        drop_stub();
    if (result == ELF_EXIT_NOTHING && !options->quiet)
        elf_say(stdout, "no file is listed as patched\n");
    return result;
}
