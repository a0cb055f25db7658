/* SPDX-License-Identifier: Apache-2.0
 *
 * relaid.c: see relaid.h. Reads through the undo note, writes, and proves what was written.
 *
 * One thread per job (and those of copy.c).
 */
#include "rewriter/job/relaid.h"
#include "rewriter/output/copy.h"
#include "rewriter/output/fault.h"
#include "rewriter/job/rest.h"
#include "rewriter/elf/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK ((size_t)64 * 1024) /* bytes copied at a time; a whole number of symbols */

static int refuse_restore(const struct elf_job *job, const char *why, struct gs_err *err)
{
    return gs_err_set(err, -ENOEXEC,
                      "%s: was changed after it was patched and cannot be restored: %s; "
                      "install it again from its package or build it again",
                      job->name, why);
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
    struct elf_copy copy = {
        .output = output, .original = &source, .sync = !job->options->no_sync};
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
    ret = ret ?: elf_copy_original(&copy, head->image_end, &digests, err);
    if (ret == 0 && memcmp(digests.image, head->image_checksum, sizeof digests.image) != 0)
        ret = refuse_restore(job, "its loaded part is no longer the original's", err);
    free_changes(job, list, count);
    return ret;
}

/* Corrects symbols in sections that got another number or moved back. */
static int mend_symbols(const struct elf_rest *rest, Elf64_Sym *symbols, size_t count,
                        struct gs_err *err)
{
    for (size_t i = 0; i < count; i++) {
        Elf64_Sym *symbol = &symbols[i];
        uint16_t section = symbol->st_shndx;

        if (section == SHN_UNDEF || section >= SHN_LORESERVE)
            continue;
        if (section >= rest->now->section_count || rest->map[section] >= rest->count)
            return gs_err_set(err, -ENOEXEC,
                              "%s: cannot be restored: a symbol of section %u would remain",
                              rest->now->source.name, section);
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
