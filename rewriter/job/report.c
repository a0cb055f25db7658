/* SPDX-License-Identifier: Apache-2.0
 *
 * report.c: the texts of --print, --check and a finished patch.
 *
 * No state; the stream is the caller's.
 */
#include "rewriter/job/report.h"
#include "rewriter/elf/say.h"

#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* The libraries that a file brings along, that use CUDA, and whose calls nothing routes: one line
 * for each, with the remedy. With --tree they are named once for all files (tree/walk.c). A program that is patched
 * with the scope process routes the calls of all its libraries; otherwise each must be
 * patched itself. */

static void name_library(FILE *to, const struct elf_job *job, const char *path, const char *why,
                         bool json, bool first)
{
    bool program = job->image.segments != NULL && job->scope == ELF_SCOPE_PROCESS;

    if (!json) {
        elf_say(to, "%s: note: %s uses CUDA (%s) and is not routed; patch %s\n", job->name,
                path, why, program ? "this program" : "the program that loads it");
        return;
    }
    fputs(first ? "{\"file\":" : ",{\"file\":", to);
    elf_say_json(to, path);
    fputs(",\"why\":", to);
    elf_say_json(to, why);
    fputc('}', to);
}

static void name_each(FILE *to, const struct elf_job *job, bool json)
{
    struct elf_closure closure;
    char real[PATH_MAX], scope[16] = "";
    bool first = true;

    if (job->patched == ELF_NOTE_FOUND)
        elf_note_value(job->note.text, "scope", scope, sizeof scope);
    if (job->options->reach == NULL || strcmp(scope, "process") == 0 ||
        job->options->folder.tree != NULL ||
        elf_closure_make(&closure, job->options->reach, job->path) != 0)
        return;
    for (size_t i = 1; i < closure.count; i++) {
        const struct elf_asker *as = &closure.list[i]->as;

        if (!as->object->reaches || as->object->patched)
            continue;
        name_library(to, job, realpath(as->path, real) != NULL ? real : as->path,
                     as->object->why, json, first);
        first = false;
    }
    elf_closure_deinit(&closure);
    if (first && job->way.kind == ELF_WAY_PLUGIN)
        name_library(to, job, job->way.path, job->way.why, json, true);
}

/* A JSON array of objects with file and why. */
static void print_unrouted(FILE *to, const struct elf_job *job)
{
    fputs(",\"unrouted\":[", to);
    name_each(to, job, true);
    fputc(']', to);
}

static const char *kind_text(const struct elf_image *image)
{
    if (image->header.e_type == ET_EXEC)
        return "program (fixed address)";
    if (image->dynamic.flags_1 & DF_1_PIE)
        return "program (PIE)";
    return image->interpreter != NULL && image->dynamic.soname == NULL ? "program (PIE)"
                                                                       : "library";
}

static const char *scope_text(enum elf_scope scope)
{
    return scope == ELF_SCOPE_PROCESS ? "process" : "object";
}

static const char *cudart_text(const struct elf_facts *facts)
{
    return facts->cudart_static                       ? "static"
           : facts->cudart_shared || facts->is_cudart ? "shared"
                                                      : "none";
}

static const char *import_name(const struct elf_job *job, size_t i)
{
    return elf_image_string(&job->image, job->facts.imports[i].name);
}

static void print_cuda(FILE *to, const struct elf_job *job)
{
    const struct elf_facts *facts = &job->facts;

    elf_say(to, "  cudart    %s", cudart_text(facts));
    if (facts->cudart_shared != NULL)
        elf_say(to, " (%s)", facts->cudart_shared);
    if (facts->cudart_static && facts->newest_api > 0)
        elf_say(to, " of CUDA %d.%d or later (by the newest driver function that it names)",
                facts->newest_api / 1000, facts->newest_api % 1000 / 10);
    fputs(facts->device_code ? "; device code inside\n" : "\n", to);
    if (facts->needed != NULL)
        elf_say(to, "  needs     %s\n", facts->needed);
    if (facts->names_libcuda)
        fputs("  names     libcuda.so (opens the driver itself)\n", to);
    if (facts->imports_dlsym && facts->looks_up_enough)
        elf_say(to, "  looks up  %s\n", facts->looked_up);
    if (job->way.kind != ELF_WAY_NONE)
        elf_say(to, "  %s %s uses CUDA (%s)\n",
                job->way.kind == ELF_WAY_LIBRARY ? "library  " : "plug-in  ", job->way.path,
                job->way.why);
    if (!elf_job_reaches(job))
        fputs("  CUDA      nothing seen\n", to);
}

/* Prints the libraries that may escape the routing. The flags of a call cannot be seen in a
 * file. */
static void print_escapes(FILE *to, const struct elf_facts *facts)
{
    if (!facts->imports_dlmopen && !facts->imports_dlopen)
        return;
    fputs("  escapes   possible: what it loads", to);
    if (facts->imports_dlmopen)
        fputs(" by dlmopen into another namespace", to);
    if (facts->imports_dlmopen && facts->imports_dlopen)
        fputs(", or", to);
    if (facts->imports_dlopen)
        fputs(" by dlopen with RTLD_DEEPBIND", to);
    fputs(" is not routed\n", to);
}

static void print_plan(FILE *to, const struct elf_plan *plan)
{
    elf_say(to, "  plan      dynamic entry: %s\n", elf_dynamic_way_text(plan->dynamic.way));
    elf_say(to, "            program header: %s", elf_slot_way_text(plan->slot.way));
    if (plan->block.size > 0)
        elf_say(to, ", %llu bytes after it move", (unsigned long long)plan->block.size);
    if (plan->slot.way == ELF_SLOT_PADDING) {
        fputs("\n            the payload behind the program stays where it is\n", to);
        return;
    }
    fprintf(to, "\n            new segment at 0x%llx; the file grows by %llu bytes\n",
            (unsigned long long)plan->tail.segment.address,
            (unsigned long long)(plan->tail.end - plan->image->source.size));
}

void elf_report_print(FILE *to, const struct elf_job *job, const struct gs_err *problem)
{
    char runtime[PATH_MAX];

    elf_say(to, "%s:\n", job->name);
    if (job->patched == ELF_NOTE_FOUND) {
        elf_note_value(job->note.text, "runtime", runtime, sizeof runtime);
        elf_say(to, "  state     patched for %s\n", runtime);
    } else {
        fputs("  state     not patched\n", to);
    }
    if (job->image.segments != NULL) {
        elf_say(to, "  kind      %s %s%s%s\n", elf_machine_name(job->image.header.e_machine),
                kind_text(&job->image), job->image.dynamic.soname ? ", " : "",
                job->image.dynamic.soname ? job->image.dynamic.soname : "");
        elf_say(to, "  scope     %s\n", scope_text(job->scope));
        print_cuda(to, job);
        fputs("  routes    ", to);
        for (size_t i = 0; i < job->facts.import_count; i++)
            elf_say(to, "%s%s%s", i > 0 ? ", " : "", import_name(job, i),
                    job->facts.imports[i].keeps_name ? " (by interposition)" : "");
        if (job->facts.import_count == 0)
            fputs("nothing of its own", to);
        fputs(job->scope == ELF_SCOPE_PROCESS
                  ? "; and the functions that its libraries look up\n"
                  : "\n",
              to);
        print_escapes(to, &job->facts);
    }
    if (job->runtime[0] != '\0')
        elf_say(to, "  runtime   %s%s\n", job->runtime,
                access(job->runtime, R_OK) == 0 ? "" : " (not there)");
    if (elf_location_leads(job->runtime, runtime))
        elf_say(to, "            which now leads to %s\n", runtime);
    if (job->stat.st_nlink > 1)
        elf_say(to, "  links     %lu names (hard links); only this one would change\n",
                (unsigned long)job->stat.st_nlink);
    if (problem->code != 0)
        elf_say(to, "  result    %s\n", problem->text);
    else if (job->plan.tail.bytes != NULL)
        print_plan(to, &job->plan);
    else
        elf_say(to, "  result    already patched; strip or objcopy ran after that\n");
    name_each(to, job, false);
}

static void json_pair(FILE *to, const char *key, const char *value)
{
    fprintf(to, ",\"%s\":", key);
    if (value != NULL)
        elf_say_json(to, value);
    else
        fputs("null", to);
}

static void json_plan(FILE *to, const struct elf_plan *plan)
{
    static const char *const dynamic[] = {"spare", "relacount", "bind_now", "verneednum"};
    static const char *const slot[] = {"null",         "property_note", "grow",
                                       "gnu_property", "end",           "padding"};

    fprintf(to,
            ",\"plan\":{\"dynamic\":\"%s\",\"program_header\":\"%s\",\"moved_bytes\":%llu,"
            "\"added_bytes\":%llu}",
            dynamic[plan->dynamic.way], slot[plan->slot.way],
            (unsigned long long)plan->block.size,
            (unsigned long long)(plan->tail.end - plan->image->source.size));
}

void elf_report_print_json(FILE *to, const struct elf_job *job, const struct gs_err *problem)
{
    fputs("{\"file\":", to);
    elf_say_json(to, job->name);
    fprintf(to, ",\"patched\":%s", job->patched == ELF_NOTE_FOUND ? "true" : "false");
    if (job->image.segments != NULL) {
        json_pair(to, "machine", elf_machine_name(job->image.header.e_machine));
        json_pair(to, "kind", kind_text(&job->image));
        json_pair(to, "soname", job->image.dynamic.soname);
        json_pair(to, "scope", scope_text(job->scope));
        json_pair(to, "cudart", cudart_text(&job->facts));
        fprintf(to, ",\"newest_driver_api\":%d,\"device_code\":%s,\"cuda\":%s",
                job->facts.newest_api, job->facts.device_code ? "true" : "false",
                elf_job_reaches(job) ? "true" : "false");
        fprintf(to, ",\"may_dlmopen\":%s,\"may_deepbind\":%s",
                job->facts.imports_dlmopen ? "true" : "false",
                job->facts.imports_dlopen ? "true" : "false");
        json_pair(to, "needs", job->facts.needed);
        json_pair(to, "through", job->way.kind != ELF_WAY_NONE ? job->way.path : NULL);
        print_unrouted(to, job);
        fputs(",\"routes\":[", to);
        for (size_t i = 0; i < job->facts.import_count; i++) {
            if (i > 0)
                fputc(',', to);
            elf_say_json(to, import_name(job, i));
        }
        fputc(']', to);
    }
    json_pair(to, "environment", job->environment[0] != '\0' ? job->environment : NULL);
    json_pair(to, "runtime", job->runtime[0] != '\0' ? job->runtime : NULL);
    if (problem->code == 0 && job->plan.tail.bytes != NULL)
        json_plan(to, &job->plan);
    json_pair(to, "problem", problem->code != 0 ? problem->text : NULL);
    fprintf(to, ",\"exit\":%d}\n", (int)elf_exit_of(problem->code));
}

void elf_report_check(FILE *to, const struct elf_job *job, bool present)
{
    char runtime[PATH_MAX], scope[32];

    if (job->patched == ELF_NOTE_NONE) {
        elf_say(to, "%s: not patched\n", job->name);
        name_each(to, job, false);
        return;
    }
    elf_note_value(job->note.text, "runtime", runtime, sizeof runtime);
    elf_note_value(job->note.text, "scope", scope, sizeof scope);
    elf_say(to, "%s: patched, %s scope, runtime %s%s%s\n", job->name,
            *scope ? scope : "unknown", *runtime ? runtime : "unknown (its marker is damaged)",
            present || !*runtime
                ? ""
                : ", which does NOT exist: the program will not start; patch it again or "
                  "install the library again",
            job->note.lost.code != 0 ? "; cannot be restored (--restore says why)" : "");
    name_each(to, job, false);
}

void elf_report_check_json(FILE *to, const struct elf_job *job, bool present,
                           const struct gs_err *problem)
{
    char runtime[PATH_MAX] = "", scope[32] = "", tool[64] = "";
    bool patched = job->patched == ELF_NOTE_FOUND;
    int status = problem->code != 0 ? (int)elf_exit_of(problem->code)
                 : !patched         ? ELF_EXIT_NOTHING
                 : present          ? ELF_EXIT_DONE
                                    : ELF_EXIT_FAILED;

    if (patched) {
        elf_note_value(job->note.text, "runtime", runtime, sizeof runtime);
        elf_note_value(job->note.text, "scope", scope, sizeof scope);
        elf_note_value(job->note.text, "tool", tool, sizeof tool);
    }
    fputs("{\"file\":", to);
    elf_say_json(to, job->name);
    fprintf(to, ",\"patched\":%s", patched ? "true" : "false");
    json_pair(to, "tool", *tool ? tool : NULL);
    json_pair(to, "scope", *scope ? scope : NULL);
    json_pair(to, "runtime", *runtime ? runtime : NULL);
    fprintf(to, ",\"runtime_present\":%s,\"restorable\":%s", present ? "true" : "false",
            patched && job->note.lost.code == 0 ? "true" : "false");
    print_unrouted(to, job);
    json_pair(to, "problem", problem->code != 0 ? problem->text : NULL);
    fprintf(to, ",\"exit\":%d}\n", status);
}

/* A signature of the old bytes is not valid for the new bytes. */
static void warn_signed(FILE *to, const struct elf_job *job)
{
    const char *lost = NULL;
    unsigned flags = 0;

    if (job->signed_before)
        lost = "its IMA or EVM signature";
    else if (ioctl(job->fd, FS_IOC_GETFLAGS, &flags) == 0 && (flags & FS_VERITY_FL))
        lost = "its fs-verity seal";
    if (lost != NULL)
        elf_say(to,
                "%s: note: %s is valid for the old content only, and --restore cannot bring it "
                "back; sign the new file again\n",
                job->name, lost);
}

void elf_report_strip(FILE *to, const struct elf_job *job)
{
    if (job->plan.slot.way == ELF_SLOT_END || job->plan.slot.way == ELF_SLOT_PADDING)
        elf_say(to,
                "%s: note: strip would break this file from now on; strip it before "
                "patching\n",
                job->name);
}

void elf_report_done(FILE *to, const struct elf_job *job)
{
    const struct elf_options *options = job->options;
    char runtime[PATH_MAX];
    struct stat st;

    elf_say(to, "%s: %s (%s scope", job->name,
            options->dry_run ? "would be patched" : "patched", scope_text(job->scope));
    for (size_t i = 0; i < job->facts.import_count && i < 4; i++)
        elf_say(to, "%s%s", i > 0 ? ", " : ", routes ", import_name(job, i));
    if (job->facts.import_count > 4)
        elf_say(to, " and %zu more", job->facts.import_count - 4);
    elf_say(to, ")%s%s\n", options->output ? " into " : "",
            options->output ? options->output : "");
    if (job->way.kind != ELF_WAY_NONE)
        elf_say(to, "%s: note: %s%s uses CUDA (%s)\n", job->name,
                job->way.kind == ELF_WAY_PLUGIN ? "loads plug-ins; " : "its library ",
                job->way.path, job->way.why);
    if (job->scope == ELF_SCOPE_OBJECT)
        name_each(to, job, false);
    if (options->output == NULL && lstat(job->name, &st) == 0 && S_ISLNK(st.st_mode))
        elf_say(to, "%s: note: is a link; the file is %s\n", job->name, job->path);
    if (elf_location_leads(job->runtime, runtime))
        elf_say(to, "%s: note: loads %s, which now leads to %s\n", job->name, job->runtime,
                runtime);
    elf_report_strip(to, job);
    warn_signed(to, job);
    if (job->group_lost)
        elf_say(to,
                "%s: note: its group %u could not be kept, since you are not in it; chgrp as "
                "root sets it again\n",
                job->name, job->stat.st_gid);
    if (job->facts.starts_programs && (elf_image_has_payload(&job->image) ||
                                       (job->facts.is_nuitka && !job->facts.imports_dlopen)))
        elf_say(to,
                "%s: note: carries other data and can start programs; one that it "
                "unpacks (Nuitka --onefile) is not routed: unpack it and patch that one, or "
                "build without --onefile\n",
                job->name);
    if (job->stat.st_nlink > 1 && options->output == NULL)
        elf_say(to,
                "%s: note: the file had %lu names (hard links); %s still name the old "
                "content\n",
                job->name, (unsigned long)job->stat.st_nlink,
                options->folder.tree != NULL ? "those outside the folder" : "the others");
}
