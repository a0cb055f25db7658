/* SPDX-License-Identifier: Apache-2.0
 *
 * relaid.c: see relaid.h. Reads through the undo note, writes, and proves what was written.
 *
 * One thread per job (and those of copy.c).
 */
#include "rewriter/job/relaid.h"
#include "rewriter/output/copy.h"
#include "rewriter/output/fault.h"
#include "rewriter/elf/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DROPPED UINT32_MAX

static int refuse_section(const struct elf_rest *rest, size_t section, const char *why,
                          struct gs_err *err)
{
    return elf_refuse(rest->now->source.name, err,
                      "cannot be restored: section %zu (%s) %s; install the file again from "
                      "its package or build it again",
                      section, elf_image_section_name(rest->now, section), why);
}

/* Numbers the sections that stay: all except the marker's, and the section that keeps the place
 * of the strings. */
static int number_sections(struct elf_rest *rest, struct gs_err *err)
{
    const struct elf_image *now = rest->now;
    size_t marker = elf_image_section(now, ELF_MARKER_SECTION);
    size_t old_strings = elf_image_section(now, ELF_OLD_STRINGS);

    if (marker == ELF_NO_SECTION)
        return refuse_section(rest, 0, "table lacks gpushare-patch's section", err);
    for (size_t i = 0; i < now->section_count; i++) {
        rest->map[i] = DROPPED;
        if (i != 0 && (i == marker || i == old_strings))
            continue;
        rest->map[i] = (uint32_t)rest->count;
        rest->from[rest->count] = (uint32_t)i;
        rest->sections[rest->count++] = now->sections[i];
    }
    return 0;
}

/* Corrects sections that refer to others by number. */
static int mend_numbers(struct elf_rest *rest, struct gs_err *err)
{
    for (size_t i = 1; i < rest->count; i++) {
        Elf64_Shdr *s = &rest->sections[i];
        bool info = (s->sh_flags & SHF_INFO_LINK) || s->sh_type == SHT_RELA;

        if (s->sh_type == SHT_SYMTAB_SHNDX || s->sh_type == SHT_GROUP)
            return refuse_section(rest, rest->from[i], "contains section numbers", err);
        if (s->sh_link >= rest->now->section_count || rest->map[s->sh_link] == DROPPED ||
            (info &&
             (s->sh_info >= rest->now->section_count || rest->map[s->sh_info] == DROPPED)))
            return refuse_section(rest, rest->from[i],
                                  "refers to a section that does not exist", err);
        s->sh_link = rest->map[s->sh_link];
        if (info)
            s->sh_info = rest->map[s->sh_info];
    }
    return 0;
}

/* Moves the contents of our segment back. */
static int move_back(struct elf_rest *rest, struct gs_err *err)
{
    const struct elf_note *note = rest->note;

    for (size_t i = 1; i < rest->count; i++) {
        Elf64_Shdr *s = &rest->sections[i];
        uint32_t copy = 0;
        uint64_t at;

        at = s->sh_addr - note->segment.p_vaddr;
        if (!(s->sh_flags & SHF_ALLOC) || s->sh_addr < note->segment.p_vaddr ||
            at >= note->segment.p_filesz)
            continue;
        while (copy < note->head.copies &&
               (at < note->copies[copy].at ||
                at - note->copies[copy].at >= note->copies[copy].length))
            copy++;
        if (copy == note->head.copies)
            return refuse_section(rest, rest->from[i], "lies in what the patch added", err);
        at -= note->copies[copy].at;
        s->sh_addr = note->copies[copy].address + at;
        s->sh_offset = note->copies[copy].offset + at;
        if (copy == 0 && at == 0 && s->sh_type == SHT_STRTAB)
            s->sh_size = note->copies[0].length;
    }
    return 0;
}

static bool is_behind(const struct elf_rest *rest, const Elf64_Shdr *s)
{
    return !(s->sh_flags & SHF_ALLOC) && s->sh_type != SHT_NOBITS && s->sh_type != SHT_NULL &&
           (s->sh_offset > rest->note->head.image_end ||
            s->sh_size > rest->note->head.image_end - s->sh_offset);
}

struct content {
    uint64_t was; /* offset in the file as it is */
    size_t index;
};

static int compare_offsets(const void *a, const void *b)
{
    const struct content *x = a, *y = b;

    if (x->was != y->was)
        return x->was < y->was ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static uint64_t section_alignment(const Elf64_Shdr *s)
{
    uint64_t align = s->sh_addralign;

    return align > 1 && align <= 4096 && (align & (align - 1)) == 0 ? align : 1;
}

static int place_sections(struct elf_rest *rest, struct gs_err *err)
{
    size_t names = rest->map[rest->now->header.e_shstrndx], count = 0;
    struct content *list = calloc(rest->count + 1, sizeof *list);
    uint64_t cursor = rest->note->head.image_end;

    if (list == NULL)
        return gs_err_set(err, -ENOMEM, "%s: no memory", rest->now->source.name);
    for (size_t i = 1; i < rest->count; i++)
        if (is_behind(rest, &rest->sections[i]))
            list[count++] = (struct content){rest->now->sections[rest->from[i]].sh_offset, i};
    qsort(list, count, sizeof *list, compare_offsets);
    for (size_t i = 0; i < count; i++) {
        Elf64_Shdr *s = &rest->sections[list[i].index];

        cursor = (cursor + section_alignment(s) - 1) & ~(section_alignment(s) - 1);
        s->sh_offset = cursor;
        if (list[i].index == names)
            s->sh_size = rest->names_size;
        cursor += s->sh_size;
    }
    free(list);
    rest->end = cursor;
    return 0;
}

/* Cuts one of our names out of the table, except for an ending that others share. */
static void cut_name(struct elf_rest *rest, const char *name)
{
    size_t length = strlen(name) + 1, at = 0, end;

    while (at + length <= rest->names_size && (memcmp(rest->names + at, name, length) != 0 ||
                                               (at > 0 && rest->names[at - 1] != '\0')))
        at++;
    if (at + length > rest->names_size)
        return;
    end = at + length;
    for (size_t i = 0; i < rest->count; i++)
        if (rest->sections[i].sh_name >= at && rest->sections[i].sh_name < end)
            end = rest->sections[i].sh_name;
    memmove(rest->names + at, rest->names + end, rest->names_size - end);
    rest->names_size -= end - at;
    for (size_t i = 0; i < rest->count; i++)
        if (rest->sections[i].sh_name >= end)
            rest->sections[i].sh_name -= (uint32_t)(end - at);
}

int elf_rest_plan(struct elf_rest *rest, const struct elf_image *now,
                  const struct elf_note *note, struct gs_err *err)
{
    int ret;

    *rest = (struct elf_rest){.now = now, .note = note};
    rest->names_size = now->section_names_size;
    rest->names = malloc(rest->names_size);
    rest->map = calloc(now->section_count, sizeof *rest->map);
    rest->from = calloc(now->section_count, sizeof *rest->from);
    rest->sections = calloc(now->section_count, sizeof *rest->sections);
    if (!rest->names || !rest->map || !rest->from || !rest->sections)
        return gs_err_set(err, -ENOMEM, "%s: no memory", now->source.name);
    memcpy(rest->names, now->section_names, rest->names_size);
    ret = number_sections(rest, err);
    ret = ret ?: mend_numbers(rest, err);
    ret = ret ?: move_back(rest, err);
    if (ret != 0)
        return ret;
    cut_name(rest, ELF_OLD_STRINGS);
    cut_name(rest, ELF_MARKER_SECTION);
    return place_sections(rest, err);
}

void elf_rest_deinit(struct elf_rest *rest)
{
    free(rest->sections);
    free(rest->map);
    free(rest->from);
    free(rest->names);
}

#define CHUNK ((size_t)64 * 1024) /* bytes copied at a time; a whole number of symbols */

static int refuse_restore(const struct elf_job *job, const char *why, struct gs_err *err)
{
    return elf_refuse(job->name, err,
                      "was changed after it was patched and cannot be restored: %s; install it "
                      "again from its package or build it again",
                      why);
}

/* The bytes to be written over the file as it is: first the parts that were moved, then those
 * that were changed. The bytes of the moved parts are allocated. */
static struct elf_change *list_changes(const struct elf_job *job, size_t *count,
                                       struct gs_err *err)
{
    const struct elf_note *note = &job->note;
    uint64_t end = note->head.image_end;
    struct elf_change *list = calloc(note->head.copies + note->undo_count + 1, sizeof *list);

    *count = 0;
    if (list == NULL) {
        gs_err_set(err, -ENOMEM, "%s: no memory", job->name);
        return NULL;
    }
    for (uint32_t i = 0; i < note->head.copies; i++) {
        const struct elf_undo_copy *copy = &note->copies[i];

        list[i] = (struct elf_change){
            .offset = copy->offset,
            .length = (uint32_t)copy->length,
            .bytes = elf_source_load(&job->raw, note->segment.p_offset + copy->at, copy->length,
                                     err)};
        ++*count;
        if (list[i].bytes == NULL)
            return list;
    }
    for (size_t i = 0; i < note->undo_count && note->undo[i].offset < end; i++) {
        struct elf_change *change = &list[(*count)++];

        *change = note->undo[i];
        if (change->length > end - change->offset)
            change->length = (uint32_t)(end - change->offset);
    }
    return list;
}

static void free_changes(const struct elf_job *job, struct elf_change *list, size_t count)
{
    for (size_t i = 0; list != NULL && i < count && i < job->note.head.copies; i++)
        free((void *)(uintptr_t)list[i].bytes);
    free(list);
}

/* Writes the loaded part, and proves that it is the original's. header gets its ELF header. */
static int write_image(const struct elf_job *job, struct elf_output *output, Elf64_Ehdr *header,
                       struct gs_err *err)
{
    const struct elf_undo_head *head = &job->note.head;
    struct elf_source source = job->raw;
    struct elf_copy copy = {.output = output,
                            .original = &source,
                            .image_end = head->image_end,
                            .sync = !job->options->no_sync};
    struct elf_digests digests;
    struct elf_change *list;
    size_t count;
    int ret;

    if (source.size < head->image_end)
        return refuse_restore(job, "it is shorter than the original's loaded part", err);
    list = list_changes(job, &count, err);
    if (list == NULL || err->code != 0) {
        free_changes(job, list, count);
        return err->code;
    }
    source.size = head->image_end;
    source.undo = list;
    source.undo_count = count;
    ret = elf_source_read(&source, 0, header, sizeof *header, err);
    ret = ret ?: elf_copy_file(&copy, &digests, err);
    if (ret == 0 && memcmp(digests.image, head->image_checksum, sizeof digests.image) != 0)
        ret = refuse_restore(job, "its loaded part is no longer the original's", err);
    free_changes(job, list, count);
    return ret;
}

/* Corrects symbols in sections that got another number or moved back. */
static int mend_symbols(const struct elf_rest *rest, Elf64_Sym *symbols, size_t count,
                        struct gs_err *err)
{
    gs_each (symbol, symbols, count) {
        uint16_t section = symbol->st_shndx;

        if (section == SHN_UNDEF || section >= SHN_LORESERVE)
            continue;
        if (section >= rest->now->section_count || rest->map[section] >= rest->count)
            return elf_refuse(rest->now->source.name, err,
                              "cannot be restored: a symbol of section %u would remain",
                              section);
        symbol->st_shndx = (uint16_t)rest->map[section];
        if (ELF64_ST_TYPE(symbol->st_info) != STT_TLS)
            symbol->st_value +=
                rest->sections[symbol->st_shndx].sh_addr - rest->now->sections[section].sh_addr;
    }
    return 0;
}

static int write_section(const struct elf_rest *rest, size_t index, struct elf_output *output,
                         uint8_t *buffer, struct gs_err *err)
{
    const Elf64_Shdr *old = &rest->now->sections[rest->from[index]];
    const Elf64_Shdr *new = &rest->sections[index];
    int ret = 0;

    for (uint64_t at = 0; ret == 0 && at < new->sh_size;) {
        size_t n = new->sh_size - at < CHUNK ? (size_t)(new->sh_size - at) : CHUNK;

        ret = elf_source_read(&rest->now->source, old->sh_offset + at, buffer, n, err);
        if (ret == 0 && new->sh_type == SHT_SYMTAB)
            ret = mend_symbols(rest, (void *)buffer, n / sizeof(Elf64_Sym), err);
        ret = ret ?: elf_output_write(output, new->sh_offset + at, buffer, n, err);
        at += n;
    }
    return ret;
}

static int write_rest(const struct elf_rest *rest, struct elf_output *output,
                      Elf64_Ehdr *header, struct gs_err *err)
{
    size_t names = rest->map[rest->now->header.e_shstrndx];
    uint64_t at = (rest->end + 7) & ~7ull;
    uint8_t *buffer = malloc(CHUNK);
    int ret = 0;

    if (buffer == NULL)
        return gs_err_set(err, -ENOMEM, "%s: no memory", rest->now->source.name);
    for (size_t i = 1; ret == 0 && i < rest->count; i++) {
        const Elf64_Shdr *s = &rest->sections[i];

        if (i == names)
            ret = elf_output_write(output, s->sh_offset, rest->names, rest->names_size, err);
        else if (s->sh_offset >= rest->note->head.image_end && s->sh_type != SHT_NOBITS &&
                 s->sh_type != SHT_NULL)
            ret = write_section(rest, i, output, buffer, err);
        elf_fault();
    }
    free(buffer);
    ret = ret
              ?: elf_output_write(output, at, rest->sections,
                                  rest->count * sizeof *rest->sections, err);
    header->e_shoff = at;
    header->e_shnum = (uint16_t)rest->count;
    header->e_shstrndx = (uint16_t)names;
    return ret;
}

/* Reads the new file like any other. The loader is not asked: the part that it sees is the
 * original's, as the checksum has shown, and after strip it may reject files that work. */
static int verify_restored(const struct elf_job *job, struct elf_output *output,
                           struct gs_err *err)
{
    struct elf_source source = {.name = job->name, .fd = output->fd};
    struct elf_image image;
    struct elf_note note;
    struct stat st;
    int ret;

    if (fstat(output->fd, &st) != 0)
        return gs_err_errno(err, -errno, "%s: cannot stat the new file", job->name);
    source.size = (uint64_t)st.st_size;
    if (elf_note_find(&note, &source) != ELF_NOTE_NONE) {
        elf_note_deinit(&note);
        return refuse_restore(job, "it would still be patched", err);
    }
    ret = elf_image_read(&image, &source, err);
    if (ret == 0)
        elf_image_deinit(&image);
    return ret;
}

static int write_sections(const struct elf_job *job, const struct elf_image *now,
                          struct elf_output *output, Elf64_Ehdr *header, struct gs_err *err)
{
    struct elf_rest rest;
    int ret;

    header->e_shoff = 0;
    header->e_shnum = 0;
    header->e_shstrndx = 0;
    if (now->section_count == 0)
        return 0;
    ret = elf_rest_plan(&rest, now, &job->note, err);
    ret = ret ?: write_rest(&rest, output, header, err);
    elf_rest_deinit(&rest);
    return ret;
}

int elf_relaid_write(struct elf_job *job, struct elf_output *output, struct gs_err *err)
{
    struct elf_image now;
    Elf64_Ehdr header;
    int ret = elf_job_read_now(job, &now, err);

    if (ret != 0)
        return ret;
    if (elf_image_has_payload(&now))
        ret = refuse_restore(job, "data was appended to it", err);
    ret = ret ?: write_image(job, output, &header, err);
    elf_fault();
    ret = ret ?: write_sections(job, &now, output, &header, err);
    ret = ret ?: elf_output_write(output, 0, &header, sizeof header, err);
    elf_fault();
    elf_image_deinit(&now);
    return ret ?: verify_restored(job, output, err);
}
