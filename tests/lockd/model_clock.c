/* SPDX-License-Identifier: Apache-2.0
 *
 * model_clock.c: the model's events in the order of time (a binary heap), and its random
 * numbers.
 */
#include "tests/lockd/model_state.h"

#include <stdlib.h>

uint64_t model_random(struct model *model, uint64_t below)
{
    uint64_t x = model->random; /* splitmix64 */

    model->random += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return below == 0 ? 0 : (x ^ (x >> 31)) % below;
}

static bool is_earlier(const struct model_event *a, const struct model_event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

void model_push(struct model *model, struct model_event event)
{
    size_t at;

    if (model->count == model->room) {
        model->room = model->room == 0 ? 1024 : model->room * 2;
        model->heap = realloc(model->heap, model->room * sizeof *model->heap);
        if (model->heap == NULL)
            abort();
    }
    event.order = ++model->order;
    for (at = model->count++; at > 0 && is_earlier(&event, &model->heap[(at - 1) / 2]);
         at = (at - 1) / 2)
        model->heap[at] = model->heap[(at - 1) / 2];
    model->heap[at] = event;
}

struct model_event model_pop(struct model *model)
{
    const struct model_event top = model->heap[0], last = model->heap[--model->count];
    size_t at = 0, child;

    while ((child = 2 * at + 1) < model->count) {
        if (child + 1 < model->count &&
            is_earlier(&model->heap[child + 1], &model->heap[child]))
            child++;
        if (!is_earlier(&model->heap[child], &last))
            break;
        model->heap[at] = model->heap[child];
        at = child;
    }
    model->heap[at] = last;
    return top;
}
