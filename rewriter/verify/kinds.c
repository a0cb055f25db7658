/* SPDX-License-Identifier: Apache-2.0
 *
 * kinds.c: the fields of the entries that the second reader compares, and the comparison.
 *
 * On a 64-bit machine libelf's GElf types are those of <elf.h>. Constant tables; no state, any
 * thread.
 */
#include "rewriter/verify/kinds.h"

#include <errno.h>
#include <string.h>

#define FIELD(type, member)                                                                    \
    {                                                                                          \
#member, offsetof(type, member), sizeof(((type *)0)->member)                           \
    }

const struct elf_kind elf_kind_header = {
    "ELF header",
    sizeof(Elf64_Ehdr),
    {FIELD(Elf64_Ehdr, e_type), FIELD(Elf64_Ehdr, e_machine), FIELD(Elf64_Ehdr, e_version),
     FIELD(Elf64_Ehdr, e_entry), FIELD(Elf64_Ehdr, e_phoff), FIELD(Elf64_Ehdr, e_shoff),
     FIELD(Elf64_Ehdr, e_flags), FIELD(Elf64_Ehdr, e_phnum), FIELD(Elf64_Ehdr, e_shnum),
     FIELD(Elf64_Ehdr, e_shstrndx)}};
const struct elf_kind elf_kind_segment = {
    "program header",
    sizeof(Elf64_Phdr),
    {FIELD(Elf64_Phdr, p_type), FIELD(Elf64_Phdr, p_flags), FIELD(Elf64_Phdr, p_offset),
     FIELD(Elf64_Phdr, p_vaddr), FIELD(Elf64_Phdr, p_paddr), FIELD(Elf64_Phdr, p_filesz),
     FIELD(Elf64_Phdr, p_memsz), FIELD(Elf64_Phdr, p_align)}};
const struct elf_kind elf_kind_section = {
    "section",
    sizeof(Elf64_Shdr),
    {FIELD(Elf64_Shdr, sh_name), FIELD(Elf64_Shdr, sh_type), FIELD(Elf64_Shdr, sh_flags),
     FIELD(Elf64_Shdr, sh_addr), FIELD(Elf64_Shdr, sh_offset), FIELD(Elf64_Shdr, sh_size),
     FIELD(Elf64_Shdr, sh_link), FIELD(Elf64_Shdr, sh_info), FIELD(Elf64_Shdr, sh_addralign),
     FIELD(Elf64_Shdr, sh_entsize)}};
const struct elf_kind elf_kind_dynamic = {
    "dynamic entry",
    sizeof(Elf64_Dyn),
    {FIELD(Elf64_Dyn, d_tag), {"value", offsetof(Elf64_Dyn, d_un), sizeof(uint64_t)}}};
const struct elf_kind elf_kind_symbol = {
    "symbol",
    sizeof(Elf64_Sym),
    {FIELD(Elf64_Sym, st_name), FIELD(Elf64_Sym, st_info), FIELD(Elf64_Sym, st_other),
     FIELD(Elf64_Sym, st_shndx), FIELD(Elf64_Sym, st_value), FIELD(Elf64_Sym, st_size)}};
const struct elf_kind elf_kind_relocation = {
    "relocation",
    sizeof(Elf64_Rela),
    {FIELD(Elf64_Rela, r_offset), FIELD(Elf64_Rela, r_info), FIELD(Elf64_Rela, r_addend)}};
const struct elf_kind elf_kind_number = {
    "version of symbol", sizeof(Elf64_Half), {{"number", 0, sizeof(Elf64_Half)}}};
const struct elf_kind elf_kind_verneed = {
    "entry of DT_VERNEED at",
    sizeof(Elf64_Verneed),
    {FIELD(Elf64_Verneed, vn_version), FIELD(Elf64_Verneed, vn_cnt),
     FIELD(Elf64_Verneed, vn_file), FIELD(Elf64_Verneed, vn_aux),
     FIELD(Elf64_Verneed, vn_next)}};
const struct elf_kind elf_kind_vernaux = {
    "version of DT_VERNEED at",
    sizeof(Elf64_Vernaux),
    {FIELD(Elf64_Vernaux, vna_hash), FIELD(Elf64_Vernaux, vna_flags),
     FIELD(Elf64_Vernaux, vna_other), FIELD(Elf64_Vernaux, vna_name),
     FIELD(Elf64_Vernaux, vna_next)}};
const struct elf_kind elf_kind_verdef = {
    "entry of DT_VERDEF at",
    sizeof(Elf64_Verdef),
    {FIELD(Elf64_Verdef, vd_version), FIELD(Elf64_Verdef, vd_flags),
     FIELD(Elf64_Verdef, vd_ndx), FIELD(Elf64_Verdef, vd_cnt), FIELD(Elf64_Verdef, vd_hash),
     FIELD(Elf64_Verdef, vd_aux), FIELD(Elf64_Verdef, vd_next)}};
const struct elf_kind elf_kind_verdaux = {
    "version of DT_VERDEF at",
    sizeof(Elf64_Verdaux),
    {FIELD(Elf64_Verdaux, vda_name), FIELD(Elf64_Verdaux, vda_next)}};
const struct elf_kind elf_kind_word = {
    "word of DT_RELR", sizeof(Elf64_Xword), {{"value", 0, sizeof(Elf64_Xword)}}};
const struct elf_kind elf_kind_byte = {"byte at offset", 1, {{"value", 0, 1}}};

static uint64_t get_field(const void *entry, size_t at, size_t size)
{
    uint64_t value = 0;

    memcpy(&value, (const char *)entry + at, size); /* little-endian, as our files are */
    return value;
}

int elf_second_compare(const struct elf_second *second, const struct elf_kind *kind,
                       uint64_t index, const void *theirs, const void *ours, const char *by,
                       struct gs_err *err)
{
    for (size_t i = 0; kind->fields[i].name != NULL; i++) {
        size_t at = kind->fields[i].at, size = kind->fields[i].size;
        uint64_t a = get_field(theirs, at, size), b = get_field(ours, at, size);

        if (a != b)
            return gs_err_set(
                err, -EIO,
                "%s: %s %llu of the new file has %s 0x%llx according to libelf, but "
                "0x%llx according to %s; the old file is left unchanged. Please report "
                "this",
                second->plan->image->source.name, kind->name, (unsigned long long)index,
                kind->fields[i].name, (unsigned long long)a, (unsigned long long)b, by);
    }
    return 0;
}
