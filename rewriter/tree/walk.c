/* SPDX-License-Identifier: Apache-2.0
 *
 * walk.c: lists ELF files and wheel records below a folder.
 *
 * Owns the lists. Each folder is opened from the root (output/folder_entry.h) and closed before the next, so
 * that no link is followed and depth costs no descriptors. No state, any thread.
 */
#include "rewriter/tree/walk.h"
#include "common/same.h"
#include "rewriter/elf/grow.h"
#include "rewriter/elf/say.h"
#include "rewriter/output/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/vfs.h>

int elf_paths_add(struct elf_paths *paths, const char *path)
{
    char **list = elf_grow(paths->list, paths->count, &paths->room, sizeof *list);

    if (list == NULL)
        return -ENOMEM;
    paths->list = list;
    paths->list[paths->count] = strdup(path);
    if (paths->list[paths->count] == NULL)
        return -ENOMEM;
    paths->count++;
    return 0;
}

void elf_paths_deinit(struct elf_paths *paths)
{
    for (size_t i = 0; i < paths->count; i++)
        free(paths->list[i]);
    free(paths->list);
    *paths = (struct elf_paths){0};
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void elf_paths_sort(struct elf_paths *paths)
{
    if (paths->count > 1)
        qsort(paths->list, paths->count, sizeof *paths->list, compare_names);
}

void elf_walk_deinit(struct elf_walk *walk)
{
    elf_paths_deinit(&walk->files);
    elf_paths_deinit(&walk->records);
    elf_paths_deinit(&walk->leftovers);
}

static bool is_excluded(const struct elf_options *options, const char *below, const char *name)
{
    for (size_t i = 0; i < options->folder.excludes.count; i++)
        if (fnmatch(options->folder.excludes.texts[i], name, 0) == 0 ||
            fnmatch(options->folder.excludes.texts[i], below, 0) == 0)
            return true;
    return false;
}

bool elf_walk_excludes(const struct elf_options *options, const char *below)
{
    char part[PATH_MAX];

    for (size_t i = 0; below[i] != '\0'; i++) { /* the folders on the way, then itself */
        if (below[i + 1] != '/' && below[i + 1] != '\0')
            continue;
        if (i + 1 >= sizeof part)
            return false;
        memcpy(part, below, i + 1);
        part[i + 1] = '\0';
        if (is_excluded(options, part, basename(part)))
            return true;
    }
    return false;
}

/* The state of one elf_walk(). */
struct stride {
    struct elf_walk *walk;
    const struct elf_root *root;
    const struct elf_options *options;
    struct elf_paths folders; /* below the root, still to be looked into; the last is next */
    dev_t device;             /* of the root */
};

/* Whether it starts like a program or library; everything else is checked later. A program that
 * may not be read counts as a CUDA program, so that an error is reported. */
static bool is_elf(int folder, const char *name, mode_t mode)
{
    unsigned char head[EI_NIDENT + 2];
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    ssize_t n;

    if (fd < 0)
        return errno == EACCES && (mode & 0111) != 0;
    n = read(fd, head, sizeof head);
    close(fd);
    return n == (ssize_t)sizeof head && memcmp(head, ELFMAG, SELFMAG) == 0 &&
           head[EI_CLASS] == ELFCLASS64 &&
           (head[EI_NIDENT] == ET_EXEC || head[EI_NIDENT] == ET_DYN);
}

/* One entry of a folder: `below` the root, and as a full path. */
static int look_at(struct stride *stride, int folder, const char *name, const char *below,
                   const char *path, struct gs_err *err)
{
    static const char record[] = ".dist-info/RECORD";
    struct elf_walk *walk = stride->walk;
    const size_t length = strlen(path);
    struct stat st;

    if (is_excluded(stride->options, below, name))
        return 0;
    if (elf_leftover_is_one(name))
        return elf_paths_add(&walk->leftovers, path);
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT
                   ? 0
                   : gs_err_errno(err, -errno,
                                  "%s: cannot read its attributes (--exclude skips it)", path);
    if (S_ISDIR(st.st_mode))
        return elf_paths_add(&stride->folders, below);
    if (!S_ISREG(st.st_mode) || strncmp(name, ".gpushare-", 10) == 0)
        return 0;
    if (length >= sizeof record && strcmp(path + length - (sizeof record - 1), record) == 0)
        return elf_paths_add(&walk->records, path);
    return is_elf(folder, name, st.st_mode) ? elf_paths_add(&walk->files, path) : 0;
}

static int look_at_all(struct stride *stride, int folder, const char *below,
                       const struct elf_paths *names, struct gs_err *err)
{
    const char *root = strcmp(stride->root->path, "/") == 0 ? "" : stride->root->path;
    char path[PATH_MAX];
    int ret = 0;

    for (size_t i = names->count; ret == 0 && i-- > 0;) { /* so the first folder is on top */
        const char *name = names->list[i];

        if (snprintf(path, sizeof path, "%s/%s%s%s", root, below, *below ? "/" : "", name) <
            (int)sizeof path)
            ret = look_at(stride, folder, name, path + strlen(root) + 1, path, err);
        else if (!is_excluded(stride->options, "", name))
            ret = gs_err_errno(err, -ENAMETOOLONG,
                               "%s: cannot read its attributes (--exclude skips it)", path);
    }
    return ret;
}

static int list_names(DIR *folder, struct elf_paths *names)
{
    struct dirent *entry;
    int ret = 0;

    errno = 0;
    while (ret == 0 && (entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            ret = elf_paths_add(names, entry->d_name);
        errno = 0;
    }
    if (ret == 0)
        ret = -errno;
    elf_paths_sort(names);
    return ret;
}

static int look_into(struct stride *stride, const char *below, struct gs_err *err)
{
    int fd = elf_root_folder(stride->root, below), ret;
    struct elf_paths names = {0};
    struct statfs mounted;
    struct stat st;
    DIR *folder;

    /* the kernel's file systems (/proc, /sys) hold no programs, and root may not read all of them */
    if (fd >= 0 && *below != '\0' && fstat(fd, &st) == 0 && st.st_dev != stride->device &&
        fstatfs(fd, &mounted) == 0 &&
        (mounted.f_type == PROC_SUPER_MAGIC || mounted.f_type == SYSFS_MAGIC)) {
        close(fd);
        return 0;
    }
    folder = fd >= 0 ? fdopendir(fd) : NULL;
    ret = folder != NULL ? list_names(folder, &names) : fd < 0 ? fd : -errno;
    if ((ret == -ENOENT || ret == -ENOTDIR || ret == -ELOOP) && *below != '\0')
        ret = 0; /* removed meanwhile, or replaced by a link */
    else if (ret != 0)
        gs_err_errno(err, ret, "%s/%s: cannot read it (--exclude skips it)", stride->root->path,
                     below);
    ret = ret ?: look_at_all(stride, fd, below, &names, err);
    elf_paths_deinit(&names);
    if (folder != NULL)
        closedir(folder);
    else if (fd >= 0)
        close(fd);
    return ret;
}

int elf_walk(struct elf_walk *walk, const struct elf_root *root,
             const struct elf_options *options, struct gs_err *err)
{
    struct stride stride = {.walk = walk, .root = root, .options = options};
    struct stat st;
    int ret = elf_paths_add(&stride.folders, "");

    *walk = (struct elf_walk){0};
    if (ret == 0 && fstat(root->fd, &st) != 0)
        ret = gs_err_errno(err, -errno, "%s: cannot read", root->path);
    else if (ret == 0)
        stride.device = st.st_dev;
    while (ret == 0 && stride.folders.count > 0) {
        char *below = stride.folders.list[--stride.folders.count];

        ret = look_into(&stride, below, err);
        free(below);
    }
    if (ret == -ENOMEM)
        gs_err_set(err, ret, "%s: no memory", root->path);
    elf_paths_sort(&walk->files);
    elf_paths_sort(&walk->records);
    elf_paths_deinit(&stride.folders);
    return ret;
}

static bool was_said(const struct elf_paths *said, const char *path)
{
    for (size_t i = 0; i < said->count; i++)
        if (strcmp(said->list[i], path) == 0)
            return true;
    return false;
}

/* Whether a file of that name is among the libraries. */
static bool is_below(const struct elf_paths *libraries, const char *name)
{
    for (size_t i = 0; i < libraries->count; i++)
        if (strcmp(strrchr(libraries->list[i], '/') + 1, name) == 0)
            return true;
    return false;
}

/* The program that loads this library may find a library that its own paths do not lead to. */
static void look_for_missing(const char *library, const struct elf_closure *closure,
                             const struct elf_paths *libraries, struct elf_paths *said)
{
    const struct elf_object *own = closure->list[0]->as.object;

    for (size_t i = 0; i < own->needed_count; i++) {
        const char *name = own->needed[i];

        if (elf_facts_is_cuda_library(name) && strncmp(name, "libcuda.so", 10) != 0 &&
            !elf_closure_has(closure, name) && !is_below(libraries, name) &&
            !was_said(said, name) && elf_paths_add(said, name) == 0)
            elf_say(
                stderr,
                "%s: note: needs %s, which uses CUDA and is not found from here: it is routed "
                "only in patched programs\n",
                library, name);
    }
}

static void look_at_closure(const struct elf_root *root, const char *library,
                            const struct elf_closure *closure, struct elf_paths *said)
{
    const struct elf_object *own = closure->list[0]->as.object;

    if (own->mute && !own->patched)
        elf_say(stderr,
                "%s: note: uses CUDA (%s), but imports nothing that its own patch could route; "
                "patch the program that loads it\n",
                library, own->why);
    for (size_t i = 1; i < closure->count; i++) {
        const struct elf_asker *as = &closure->list[i]->as;
        char real[PATH_MAX];

        if (!as->object->reaches || as->object->patched || realpath(as->path, real) == NULL ||
            elf_root_below(root, real) != NULL || was_said(said, real))
            continue;
        elf_say(
            stderr,
            "%s: note: loads %s, which uses CUDA (%s) and is outside %s: it is routed only in "
            "patched programs\n",
            library, real, as->object->why, root->path);
        if (elf_paths_add(said, real) != 0)
            return;
    }
}

void elf_outside_say(const struct elf_root *root, const struct elf_paths *libraries,
                     const struct elf_options *options)
{
    struct elf_paths said = {0};
    struct elf_closure closure;

    if (options->within.programs_only)
        return;
    for (size_t i = 0; i < libraries->count; i++) {
        if (elf_closure_make(&closure, options->reach, libraries->list[i]) == 0) {
            look_at_closure(root, libraries->list[i], &closure, &said);
            look_for_missing(libraries->list[i], &closure, libraries, &said);
        }
        elf_closure_deinit(&closure);
    }
    elf_paths_deinit(&said);
}

/* Threads take the numbers of files from a counter. A file with several names
 * (hard links) is processed under its first name; the other names are moved to the new file when
 * all threads have ended. Owns the results. A lock keeps the reports of one file together. */

#define ALONE SIZE_MAX

struct name {
    struct stat was; /* before the work */
    size_t first;    /* the first name of the same file, if that is another name; else ALONE */
};

struct work {
    struct elf_parallel *parallel;
    struct name *names; /* NULL: each is worked on by itself */
    atomic_size_t next; /* relaxed: only hands out numbers; joining orders the results */
    pthread_mutex_t lock;
    size_t done; /* under lock */
};

static void show_progress(const struct work *work, const char *path)
{
    const struct elf_parallel *parallel = work->parallel;
    char name[64];

    if (!isatty(STDERR_FILENO) || parallel->options->quiet)
        return;
    if (work->done == parallel->files->count) {
        fputs("\r\033[K", stderr);
        return;
    }
    snprintf(name, sizeof name, "%s", strrchr(path, '/') + 1);
    elf_say_clean(name);
    fprintf(stderr, "\r%s %zu of %zu: %s\033[K", parallel->what, work->done,
            parallel->files->count, name);
}

static void work_on(struct work *work, size_t index)
{
    struct elf_parallel *parallel = work->parallel;
    const char *path = parallel->files->list[index];
    char *texts[2] = {NULL, NULL};
    size_t sizes[2];
    FILE *out = open_memstream(&texts[0], &sizes[0]);
    FILE *errors = open_memstream(&texts[1], &sizes[1]);
    enum elf_exit result = ELF_EXIT_FAILED;

    if (out != NULL && errors != NULL)
        result = elf_act(path, parallel->options, out, errors, &parallel->reaches[index]);
    if (out != NULL)
        fclose(out);
    if (errors != NULL)
        fclose(errors);
    parallel->results[index] = result;
    pthread_mutex_lock(&work->lock);
    work->done++;
    show_progress(work, path);
    if (texts[0] != NULL && !parallel->silent)
        fputs(texts[0], stdout);
    if (texts[1] != NULL && (result == ELF_EXIT_FAILED || parallel->every ||
                             (parallel->reaches[index] && result == ELF_EXIT_UNSUPPORTED)))
        fputs(texts[1], stderr);
    pthread_mutex_unlock(&work->lock);
    free(texts[0]);
    free(texts[1]);
}

static void *take_files(void *argument)
{
    struct work *work = argument;
    size_t index;

    while ((index = atomic_fetch_add_explicit(&work->next, 1, memory_order_relaxed)) <
           work->parallel->files->count)
        if (work->names == NULL || work->names[index].first == ALONE)
            work_on(work, index);
    return NULL;
}

/* Finds the names that are one file. NULL: no memory; then each becomes a file of its own. */
static struct name *find_names(const struct elf_root *root, const struct elf_paths *files)
{
    struct name *names = calloc(files->count + 1, sizeof *names);
    size_t linked = 0, *list = calloc(files->count + 1, sizeof *list);

    for (size_t i = 0; names != NULL && list != NULL && i < files->count; i++) {
        struct stat *st = &names[i].was;
        struct elf_entry entry;
        const bool is_there = elf_entry_open(&entry, root, files->list[i], NULL) == 0 &&
                              fstatat(entry.folder, entry.base, st, AT_SYMLINK_NOFOLLOW) == 0;

        elf_entry_close(&entry);
        names[i].first = ALONE;
        if (!is_there || !S_ISREG(st->st_mode) || st->st_nlink < 2)
            continue;
        for (size_t j = 0; j < linked && names[i].first == ALONE; j++)
            if (gs_same_inode(&names[list[j]].was, st))
                names[i].first = list[j];
        if (names[i].first == ALONE)
            list[linked++] = i;
    }
    if (list == NULL) {
        free(names);
        names = NULL;
    }
    free(list);
    return names;
}

/* Opens the new file by its first name. The descriptor; -EEXIST if it is still the old file. */
static int open_first(const struct elf_parallel *parallel, const struct name *name)
{
    struct elf_entry entry;
    struct stat now;
    int ret = elf_entry_open(&entry, parallel->options->within.root,
                             parallel->files->list[name->first], NULL);

    if (ret != 0)
        return ret;
    ret = openat(entry.folder, entry.base, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    elf_entry_close(&entry);
    if (ret < 0 || fstat(ret, &now) != 0 || !gs_same_inode(&now, &name->was))
        return ret;
    close(ret);
    return -EEXIST;
}

/* Gives the file of the first name this name as well. 0, also if it has it already. */
static int follow_name(const struct elf_parallel *parallel, const struct name *name,
                       const char *path)
{
    bool done = parallel->results[name->first] == ELF_EXIT_DONE;
    int first = done ? open_first(parallel, name) : -ENOENT, ret;
    struct elf_entry entry;
    struct elf_output output;

    if (first < 0)
        return first == -EEXIST ? 0 : first;
    ret = elf_entry_open(&entry, parallel->options->within.root, path, NULL);
    ret = ret ?: elf_output_link(&output, &entry, path, first, NULL);
    elf_entry_close(&entry);
    close(first);
    if (ret != 0)
        return ret;
    ret = elf_output_commit(&output, &name->was, !parallel->options->no_sync, NULL);
    elf_output_deinit(&output);
    return ret;
}

static void follow_all(struct work *work)
{
    struct elf_parallel *parallel = work->parallel;

    for (size_t i = 0; work->names != NULL && i < parallel->files->count; i++) {
        size_t first = work->names[i].first;
        int ret = first != ALONE
                      ? follow_name(parallel, &work->names[i], parallel->files->list[i])
                      : -1;

        if (first == ALONE)
            continue;
        if (ret < 0) { /* then it becomes a file of its own, or an error is reported */
            work_on(work, i);
            continue;
        }
        parallel->results[i] = ELF_EXIT_DONE;
        parallel->reaches[i] = parallel->reaches[first];
        work->done++;
        show_progress(work, parallel->files->list[i]);
        if (!parallel->options->quiet)
            elf_say(stdout, "%s: is still %s (hard links)\n", parallel->files->list[i],
                    parallel->files->list[first]);
    }
}

int elf_parallel_run(struct elf_parallel *parallel)
{
    const struct elf_options *options = parallel->options;
    bool changes = !options->dry_run && !options->print && !options->check;
    struct work work = {.parallel = parallel, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[256];
    unsigned started = 0;

    parallel->results = calloc(parallel->files->count + 1, sizeof *parallel->results);
    parallel->reaches = calloc(parallel->files->count + 1, sizeof *parallel->reaches);
    if (parallel->results == NULL || parallel->reaches == NULL)
        return -ENOMEM;
    work.names = changes ? find_names(options->within.root, parallel->files) : NULL;
    while (started + 1 < options->folder.jobs && started + 1 < parallel->files->count &&
           pthread_create(&threads[started], NULL, take_files, &work) == 0)
        started++;
    take_files(&work);
    while (started > 0)
        pthread_join(threads[--started], NULL);
    follow_all(&work);
    free(work.names);
    pthread_mutex_destroy(&work.lock);
    return 0;
}

void elf_parallel_deinit(struct elf_parallel *parallel)
{
    free(parallel->results);
    free(parallel->reaches);
}
