/* SPDX-License-Identifier: Apache-2.0
 *
 * tree.c: many files at once: finds those that reach CUDA, then processes them as the options
 * say.
 *
 * Two passes with a few threads each. The first only looks, so that the manifest can be written
 * before anything is changed, and a killed run can still be undone. The second acts. Owns the
 * lists and the manifest, and the lock on the folder while it changes them.
 */
#include "rewriter/tree/tree.h"
#include "rewriter/output/output.h"
#include "rewriter/elf/say.h"
#include "rewriter/tree/venv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

struct tree {
    struct elf_options *options;
    struct elf_root root; /* locked while it is changed */
    struct elf_walk walk;
    size_t listed_before;                   /* number of entries in the manifest at the start */
    struct elf_manifest manifest, left_out; /* left_out: those that options exclude */
    struct elf_paths chosen;                /* files to act on, full paths */
    struct elf_paths reaching;              /* libraries that use CUDA, full paths */
    enum elf_exit result;
    struct gs_err err;
};

static const char *path_below(const struct tree *tree, const char *path)
{
    return elf_root_below(&tree->root, path);
}

static int make_full_path(const struct tree *tree, const char *path, char out[PATH_MAX],
                          struct gs_err *err)
{
    const char *folder = strcmp(tree->root.path, "/") == 0 ? "" : tree->root.path;

    if (snprintf(out, PATH_MAX, "%s/%s", folder, path) >= PATH_MAX)
        return gs_err_set(err, -ENAMETOOLONG, "%s/%s: the path is too long", folder, path);
    return 0;
}

/* Finds a listed file. The manifest was made without following links. A link that was made
 * since may lead to another place in the folder, and `path` is that place then; it may not
 * lead out of the folder. A listed link is looked for in its own folder. 0; 1 if nothing is
 * there. */
static int find_listed(const struct tree *tree, const struct elf_manifest_entry *entry,
                       char path[PATH_MAX], struct gs_err *err)
{
    char real[PATH_MAX], folder[PATH_MAX];

    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    if (realpath(entry->target != NULL ? folder : path, real) == NULL)
        return 1;
    if (path_below(tree, real) == NULL)
        return gs_err_set(
            err, -EXDEV,
            "%s: is listed, but is now a link to %s; nothing was done; remove the "
            "link, or its line in %s",
            path, real, ELF_MANIFEST_NAME);
    if (entry->target == NULL)
        memcpy(path, real, sizeof real);
    return 0;
}

static bool is_program(const struct tree *tree, const char *path)
{
    const struct elf_object *object = elf_reach_object(tree->options->reach, path);

    return object != NULL && object->program;
}

/* Finds those of the files that would be patched, or are. `others` gets the programs for which
 * there is nothing to do; NULL: they are of no interest. */
static int look_at_files(struct tree *tree, const struct elf_paths *files,
                         struct elf_paths *others)
{
    struct elf_options look = *tree->options;
    struct elf_parallel parallel = {
        .options = &look, .files = files, .what = "looking at", .silent = true};
    int ret;

    look.dry_run = true;
    look.print = look.check = look.restore = look.json = false;
    ret = elf_parallel_run(&parallel);
    for (size_t i = 0; ret == 0 && i < files->count; i++) {
        const char *path = files->list[i];

        if (parallel.results[i] == ELF_EXIT_DONE)
            ret = elf_paths_add(&tree->chosen, path);
        else if (parallel.results[i] == ELF_EXIT_FAILED ||
                 (parallel.results[i] == ELF_EXIT_UNSUPPORTED && parallel.reaches[i]))
            tree->result = elf_exit_graver(tree->result, parallel.results[i]);
        if (ret == 0 && parallel.reaches[i] && !is_program(tree, path))
            ret = elf_paths_add(&tree->reaching, path);
        else if (ret == 0 && parallel.results[i] == ELF_EXIT_NOTHING && others != NULL &&
                 is_program(tree, path))
            ret = elf_paths_add(others, path);
    }
    elf_parallel_deinit(&parallel);
    return ret;
}

/* Names the first program that loads plug-ins of which nothing is known, and counts the others:
 * only the environment of a run shows what they load. */
static void say_loaders(const struct tree *tree, const struct elf_paths *programs)
{
    const char *first = NULL;
    size_t count = 0;

    for (size_t i = 0; i < programs->count; i++) {
        const struct elf_object *object =
            elf_reach_object(tree->options->reach, programs->list[i]);

        if (object != NULL && object->can_dlopen && count++ == 0) /* NULL: it is gone */
            first = programs->list[i];
    }
    if (count == 1)
        elf_say(stderr,
                "%s: note: loads plug-ins, and none that uses CUDA was found; patch it with "
                "--any if it loads CUDA later\n",
                first);
    else if (count > 1)
        elf_say(stderr,
                "%s: note: it and %zu more load plug-ins, and none that uses CUDA was found; "
                "patch those with --any that load CUDA later\n",
                first, count - 1);
}

/* First pass: finds the files to act on. If there is a library that uses CUDA, then
 * programs that can load plug-ins may load it. */
static int choose_files(struct tree *tree)
{
    struct elf_paths programs = {0};
    int ret;

    elf_paths_deinit(&tree->reaching);
    ret = look_at_files(tree, &tree->walk.files, &programs);
    if (ret == 0 && tree->reaching.count > 0 && programs.count > 0) {
        tree->options->within.plugin = tree->reaching.list[0];
        ret = look_at_files(tree, &programs, NULL);
    } else if (ret == 0 && !tree->options->quiet) {
        say_loaders(tree, &programs);
    }
    elf_paths_deinit(&programs);
    return ret;
}

static void report_problem(struct tree *tree, const char *path, const char *what)
{
    elf_say(stderr, "gpushare-patch: %s: %s\n", path, what);
    tree->result = ELF_EXIT_FAILED;
}

static int update_records(struct tree *tree, const struct elf_paths *changed)
{
    size_t lines = 0;
    bool failed = false;
    int ret = elf_record_update(&tree->root, &tree->walk.records, changed, &lines, &failed);

    if (failed)
        tree->result = ELF_EXIT_FAILED;
    if (lines > 0 && !tree->options->quiet)
        elf_say(stdout, "%s: %zu lines of wheel records updated\n", tree->root.path, lines);
    return ret;
}

static int act_on_chosen(struct tree *tree, const char *what, struct elf_paths *good)
{
    struct elf_parallel parallel = {
        .options = tree->options, .files = &tree->chosen, .what = what, .every = true};
    int ret = elf_parallel_run(&parallel);

    for (size_t i = 0; ret == 0 && i < tree->chosen.count; i++) {
        tree->result = elf_exit_graver(tree->result, parallel.results[i]);
        if (parallel.results[i] == ELF_EXIT_DONE || parallel.results[i] == ELF_EXIT_NOTHING)
            ret =
                elf_paths_add(good, tree->chosen.list[i]); /* perhaps a killed run changed it */
    }
    elf_paths_sort(good);
    elf_parallel_deinit(&parallel);
    return ret;
}

static bool is_patched(const struct tree *tree, const struct elf_manifest_entry *entry)
{
    struct elf_job job;
    char path[PATH_MAX];
    bool patched;

    if (make_full_path(tree, entry->path, path, NULL) != 0)
        return false;
    patched =
        elf_job_open(&job, path, tree->options, NULL) == 0 && job.patched == ELF_NOTE_FOUND;
    elf_job_deinit(&job);
    return patched;
}

/* The manifest was written before anything was done, so that a killed run can be undone. Files
 * that could not be patched are removed from it here. */
static int trim_manifest(struct tree *tree)
{
    struct elf_manifest all = tree->manifest;
    int ret = 0;

    if (tree->result == ELF_EXIT_DONE)
        return 0;
    tree->manifest = (struct elf_manifest){0};
    for (size_t i = 0; ret == 0 && i < all.count; i++)
        if (i < tree->listed_before || is_patched(tree, &all.entries[i]))
            ret = elf_manifest_add(&tree->manifest, all.entries[i].path, all.entries[i].target);
    if (ret == 0 && tree->manifest.count < all.count)
        ret = elf_manifest_write(&tree->manifest, &tree->root, &tree->err);
    elf_manifest_deinit(&all);
    return ret;
}

static int patch_tree(struct tree *tree)
{
    const struct elf_options *options = tree->options;
    struct elf_paths changed = {0};
    size_t links = 0;
    int ret = choose_files(tree);

    if (ret == 0 && options->folder.venv != NULL)
        ret = elf_venv_links(&tree->root, &tree->manifest, &links, &tree->err);
    for (size_t i = 0; ret == 0 && i < tree->chosen.count; i++)
        ret = elf_manifest_add(&tree->manifest, path_below(tree, tree->chosen.list[i]), NULL);
    if (ret == 0 && !options->dry_run && !options->print)
        ret = elf_manifest_write(&tree->manifest, &tree->root, &tree->err);
    ret = ret ?: act_on_chosen(tree, options->print ? "printing" : "patching", &changed);
    if (ret == 0)
        elf_outside_say(&tree->root, &tree->reaching, options);
    if (ret == 0 && links > 0)
        tree->result = elf_exit_graver(tree->result, elf_venv_patch(&tree->manifest, options));
    if (ret == 0 && !options->dry_run && !options->print)
        ret = update_records(tree, &changed);
    if (ret == 0 && !options->dry_run && !options->print)
        ret = trim_manifest(tree);
    if (ret == 0 && tree->chosen.count == 0 && links == 0 && tree->result == ELF_EXIT_DONE)
        ret = gs_err_set(&tree->err, -ENODATA, "%s: nothing to do: %s", tree->root.path,
                         tree->reaching.count == 0
                             ? "no file uses CUDA"
                             : "no library calls the driver itself; patch the program that "
                               "loads them");
    elf_paths_deinit(&changed);
    return ret;
}

/* Chooses the manifest's files that still exist. */
static int choose_listed(struct tree *tree)
{
    int ret =
        tree->manifest.count + tree->left_out.count > 0
            ? 0
            : gs_err_set(&tree->err, -ENODATA,
                         "%s: nothing to do: there is no %s that lists what was patched here",
                         tree->root.path, ELF_MANIFEST_NAME);

    for (size_t i = 0; ret == 0 && i < tree->manifest.count; i++) {
        const struct elf_manifest_entry *entry = &tree->manifest.entries[i];
        char path[PATH_MAX];
        int gone;

        ret = make_full_path(tree, entry->path, path, &tree->err);
        gone = ret ?: find_listed(tree, entry, path, &tree->err);
        ret = gone < 0 ? gone : 0;
        if (ret != 0 || entry->target != NULL)
            continue;
        if (gone == 0)
            ret = elf_paths_add(&tree->chosen, path);
        else if (tree->options->check && !tree->options->quiet)
            elf_say(stderr, "%s: no longer exists; nothing to do\n", path);
    }
    return ret;
}

static int restore_tree(struct tree *tree)
{
    struct elf_paths changed = {0};
    int ret = choose_listed(tree);

    ret = ret ?: act_on_chosen(tree, "restoring", &changed);
    if (tree->result == ELF_EXIT_NOTHING)
        tree->result = ELF_EXIT_DONE; /* an upgrade replaced it: it contains nothing of ours */
    if (ret == 0 && !tree->options->dry_run)
        ret = update_records(tree, &changed);
    if (ret == 0 && !tree->options->dry_run)
        ret = elf_venv_restore(&tree->manifest, tree->options, &tree->err);
    if (ret == 0 && tree->result == ELF_EXIT_DONE && !tree->options->dry_run)
        ret = elf_manifest_write(&tree->left_out, &tree->root, &tree->err);
    elf_paths_deinit(&changed);
    return ret;
}

/* Reports files that are listed but no longer patched, and files that are neither. */
static int check_tree(struct tree *tree)
{
    struct elf_parallel parallel = {
        .options = tree->options, .files = &tree->chosen, .what = "checking", .every = true};
    int ret = choose_listed(tree);
    bool is_new = ret == -ENODATA; /* nothing was patched here: what could be is named */

    ret = (is_new ? 0 : ret) ?: elf_parallel_run(&parallel);
    for (size_t i = 0; ret == 0 && i < tree->chosen.count; i++) {
        if (parallel.results[i] == ELF_EXIT_NOTHING)
            report_problem(tree, tree->chosen.list[i],
                           "was patched and no longer is (an upgrade?); patch the tree again");
        if (parallel.results[i] != ELF_EXIT_DONE)
            tree->result = ELF_EXIT_FAILED;
    }
    elf_parallel_deinit(&parallel);
    elf_paths_deinit(&tree->chosen);
    if (ret == 0 && !elf_venv_check(&tree->manifest, tree->options))
        tree->result = ELF_EXIT_FAILED;
    ret = ret ?: choose_files(tree);
    if (ret == 0)
        elf_outside_say(&tree->root, &tree->reaching, tree->options);
    for (size_t i = 0; ret == 0 && i < tree->chosen.count; i++)
        if (is_new)
            elf_say(stderr, "%s: uses CUDA and is not patched\n", tree->chosen.list[i]);
        else if (!elf_manifest_has(&tree->manifest, path_below(tree, tree->chosen.list[i])))
            report_problem(tree, tree->chosen.list[i],
                           "uses CUDA and is not listed; patch the tree again");
    return ret != 0 ? ret : is_new ? -ENODATA : 0;
}

/* Without the lock, two runs that change the same folder would each write a list without the
 * other's files. */
static int lock_folder(struct tree *tree)
{
    const struct elf_options *options = tree->options;

    if (options->dry_run || options->print || options->check)
        return 0;
    if (flock(tree->root.fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return 0; /* some file systems cannot lock */
    return gs_err_set(
        &tree->err, -EBUSY,
        "%s: another gpushare-patch is running there; try again when it has ended",
        tree->root.path);
}

/* Excluded files are neither restored nor checked, and stay in the list. */
static int leave_out(struct tree *tree)
{
    struct elf_manifest all = tree->manifest;
    int ret = 0;

    if (tree->options->folder.excludes.count == 0 ||
        (!tree->options->restore && !tree->options->check))
        return 0;
    tree->manifest = (struct elf_manifest){0};
    for (size_t i = 0; ret == 0 && i < all.count; i++) {
        const struct elf_manifest_entry *entry = &all.entries[i];

        ret = elf_manifest_add(elf_walk_excludes(tree->options, entry->path) ? &tree->left_out
                                                                             : &tree->manifest,
                               entry->path, entry->target);
    }
    elf_manifest_deinit(&all);
    return ret;
}

/* Removes the files that killed runs have left below the folder. */
static void remove_leftovers(const struct tree *tree)
{
    const struct elf_options *options = tree->options;
    bool changes = !options->dry_run && !options->print && !options->check;

    for (size_t i = 0; i < tree->walk.leftovers.count; i++) {
        const char *path = tree->walk.leftovers.list[i];
        struct elf_entry entry;

        if (options->check && !options->quiet)
            elf_say(stderr,
                    "%s: was left behind by a killed run; patching or restoring the tree "
                    "removes it\n",
                    path);
        if (!changes)
            continue;
        if (elf_entry_open(&entry, &tree->root, path, NULL) == 0)
            elf_leftover_sweep(entry.folder, entry.base);
        elf_entry_close(&entry);
    }
}

static int open_listed(struct tree *tree, const char *path)
{
    struct stat st;
    int ret = elf_root_open_resolved(&tree->root, path, &tree->err);

    if (ret != 0)
        return ret;
    if (fstat(tree->root.fd, &st) != 0)
        return gs_err_errno(&tree->err, -errno, "%s: cannot stat", path);
    if (geteuid() != 0 || st.st_uid == 0)
        return 0;
    return gs_err_set(&tree->err, -EPERM,
                      "%s: belongs to user %u, so root changes nothing in it", path,
                      (unsigned)st.st_uid);
}

static int run_tree(struct tree *tree)
{
    const struct elf_options *options = tree->options;
    const char *name =
        options->folder.tree != NULL ? options->folder.tree : options->folder.venv;
    int ret = options->folder.listed ? open_listed(tree, name)
                                     : elf_root_open(&tree->root, name, &tree->err);

    if (ret != 0)
        return ret;
    if (options->folder.venv != NULL && faccessat(tree->root.fd, "pyvenv.cfg", F_OK, 0) != 0)
        return gs_err_set(&tree->err, -EINVAL,
                          "%s: is not a Python environment (it has no pyvenv.cfg); use --tree",
                          name);
    ret = lock_folder(tree);
    ret = ret ?: elf_walk(&tree->walk, &tree->root, options, &tree->err);
    ret = ret ?: elf_manifest_read(&tree->manifest, &tree->root, &tree->err);
    tree->listed_before = tree->manifest.count;
    ret = ret ?: leave_out(tree);
    if (ret != 0)
        return ret;
    remove_leftovers(tree);
    if (options->restore)
        return restore_tree(tree);
    return options->check ? check_tree(tree) : patch_tree(tree);
}

enum elf_exit elf_tree(const struct elf_options *options)
{
    struct elf_options inside = *options;
    struct tree tree = {.options = &inside, .root.fd = -1, .result = ELF_EXIT_DONE};
    int ret;

    inside.within.root = &tree.root;
    ret = run_tree(&tree);

    if (ret != 0) {
        gs_err_set(&tree.err, ret, "%s: no memory", tree.root.path);
        elf_say(stderr, "gpushare-patch: %s\n", tree.err.text);
        tree.result = elf_exit_graver(tree.result, elf_exit_of(ret));
    }
    elf_paths_deinit(&tree.chosen);
    elf_paths_deinit(&tree.reaching);
    elf_manifest_deinit(&tree.manifest);
    elf_manifest_deinit(&tree.left_out);
    elf_walk_deinit(&tree.walk);
    elf_root_close(&tree.root);
    return tree.result;
}
