/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: runs the planning steps in order.
 *
 * Frees everything in struct elf_plan except image and facts. Files are read only through the
 * image's source, and none is written. No state, any thread.
 */
#include "rewriter/plan/imports.h"
#include "rewriter/plan/block.h"
#include "rewriter/plan/padding.h"
#include "rewriter/plan/plan.h"
#include "rewriter/plan/sections.h"
#include "rewriter/plan/slot.h"
#include "rewriter/plan/tail.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Everything new goes behind the end of the file. */
static int plan_growth(struct elf_plan *plan, const char *runtime, struct gs_err *err)
{
    int ret = elf_plan_names(plan, runtime, err);

    ret = ret ?: elf_plan_needed(plan, err);
    ret = ret ?: elf_plan_origin(plan);
    ret = ret ?: elf_plan_slot(plan);
    ret = ret ?: elf_plan_lay_out(plan, err);
    ret = ret ?: elf_plan_init(plan);
    ret = ret ?: elf_plan_sections(plan, err);
    ret = ret ?: elf_plan_needed_finish(plan);
    return ret ?: elf_plan_tail(plan, err);
}

int elf_plan_make(struct elf_plan *plan, const struct elf_image *image,
                  const struct elf_facts *facts, const struct elf_wish *wish,
                  struct gs_err *err)
{
    int ret;

    memset(plan, 0, sizeof *plan);
    plan->image = image;
    plan->facts = facts;
    plan->origin = wish->origin;
    if (strlen(wish->marker) >= sizeof plan->marker)
        return gs_err_set(err, -ENAMETOOLONG, "%s: the path of the runtime library is too long",
                          image->source.name);
    memcpy(plan->marker, wish->marker, strlen(wish->marker) + 1);
    if (elf_image_has_payload(image))
        ret = elf_plan_padding(plan, wish->runtime, err);
    else
        ret = plan_growth(plan, wish->runtime, err);
    if (ret != 0) {
        gs_err_set(err, ret, "%s: no memory",
                   image->source.name); /* if no step has said more */
        elf_plan_deinit(plan);
    }
    return ret;
}

void elf_plan_deinit(struct elf_plan *plan)
{
    for (size_t i = 0; i < plan->changes.count; i++)
        free((void *)(uintptr_t)plan->changes.list[i].bytes);
    free(plan->changes.list);
    free(plan->names.bytes);
    free(plan->dynamic.entries);
    free(plan->slot.segments);
    free(plan->sections);
    free(plan->tail.bytes);
    memset(plan, 0, sizeof *plan);
}

const char *elf_dynamic_way_text(enum elf_dynamic_way way)
{
    static const char *const text[] = {
        [ELF_DYNAMIC_SPARE] = "spare entry",
        [ELF_DYNAMIC_COUNT] = "in place of DT_RELACOUNT",
        [ELF_DYNAMIC_NOW] = "in place of DT_BIND_NOW",
        [ELF_DYNAMIC_VERSIONS] = "in place of DT_VERNEEDNUM",
    };

    return text[way];
}

const char *elf_slot_way_text(enum elf_slot_way way)
{
    static const char *const text[] = {
        [ELF_SLOT_NULL] = "spare PT_NULL",
        [ELF_SLOT_PROPERTY] = "in place of the PT_NOTE that duplicates PT_GNU_PROPERTY",
        [ELF_SLOT_GROW] = "table grows in place",
        [ELF_SLOT_NOTE] = "in place of the PT_GNU_PROPERTY that a PT_NOTE duplicates",
        [ELF_SLOT_PADDING] = "none: the file does not grow, the name is stored in padding",
        [ELF_SLOT_END] = "table moves to the end of the file (strip would break the file)",
    };

    return text[way];
}
