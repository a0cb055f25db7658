/* SPDX-License-Identifier: Apache-2.0
 *
 * edits.c: see edits.h. No state.
 */
#include "cluster/edits.h"

#include <errno.h>
#include <string.h>

static char *copy_text(struct pool *pool, const json_t *value)
{
    const char *text = json_string_value(value);

    return pool_text(pool, "%s", text != NULL ? text : "");
}

static int add_variable(struct pool *pool, V1beta1__AllocateAnswer *answer, const json_t *entry)
{
    const char *text = json_string_value(entry), *equals = NULL;
    V1beta1__Pair *pair = pool_take(pool, 1, sizeof *pair);

    if (text != NULL)
        equals = strchr(text, '=');
    if (equals == NULL)
        return 0;
    if (pair == NULL)
        return -ENOMEM;
    v1beta1__pair__init(pair);
    pair->key = pool_text(pool, "%.*s", (int)(equals - text), text);
    pair->value = pool_text(pool, "%s", equals + 1);
    answer->environment[answer->n_environment++] = pair;
    return pair->key != NULL && pair->value != NULL ? 0 : -ENOMEM;
}

static bool is_read_only(const json_t *mount)
{
    json_t *option;
    size_t i;

    json_array_foreach(json_object_get(mount, "options"), i, option)
    {
        const char *text = json_string_value(option);

        if (text != NULL && strcmp(text, "ro") == 0)
            return true;
    }
    return false;
}

static int add_mount(struct pool *pool, V1beta1__AllocateAnswer *answer, const json_t *entry)
{
    V1beta1__Mount *mount = pool_take(pool, 1, sizeof *mount);

    if (mount == NULL)
        return -ENOMEM;
    v1beta1__mount__init(mount);
    mount->container_path = copy_text(pool, json_object_get(entry, "containerPath"));
    mount->host_path = copy_text(pool, json_object_get(entry, "hostPath"));
    mount->read_only = is_read_only(entry);
    answer->mounts[answer->n_mounts++] = mount;
    return mount->container_path != NULL && mount->host_path != NULL ? 0 : -ENOMEM;
}

static int add_node(struct pool *pool, V1beta1__AllocateAnswer *answer, const json_t *entry)
{
    const json_t *path = json_object_get(entry, "path"),
                 *host = json_object_get(entry, "hostPath"),
                 *rights = json_object_get(entry, "permissions");
    V1beta1__Node *node = pool_take(pool, 1, sizeof *node);

    if (node == NULL)
        return -ENOMEM;
    v1beta1__node__init(node);
    node->container_path = copy_text(pool, path);
    node->host_path = copy_text(pool, host != NULL ? host : path);
    node->permissions = rights != NULL ? copy_text(pool, rights) : pool_text(pool, "rw");
    answer->nodes[answer->n_nodes++] = node;
    return node->container_path != NULL && node->host_path != NULL && node->permissions != NULL
               ? 0
               : -ENOMEM;
}

typedef int add_entry(struct pool *pool, V1beta1__AllocateAnswer *answer, const json_t *entry);

static int add_list(struct pool *pool, V1beta1__AllocateAnswer *answer, const json_t *list,
                    add_entry *add)
{
    json_t *entry;
    size_t i;
    int code = 0;

    json_array_foreach(list, i, entry)
    {
        code = add(pool, answer, entry);
        if (code != 0)
            break;
    }
    return code;
}

static int add_edits(struct pool *pool, V1beta1__AllocateAnswer *answer, const json_t *edits)
{
    int code = add_list(pool, answer, json_object_get(edits, "env"), add_variable);

    code =
        code == 0 ? add_list(pool, answer, json_object_get(edits, "mounts"), add_mount) : code;
    return code == 0 ? add_list(pool, answer, json_object_get(edits, "deviceNodes"), add_node)
                     : code;
}

static size_t count_of(const json_t *edits, const char *name)
{
    return json_array_size(json_object_get(edits, name));
}

int edits_fill(const struct cards *cards, const unsigned *chosen, size_t count,
               struct pool *pool, V1beta1__AllocateAnswer *answer)
{
    const json_t *common = json_object_get(cards->spec, "containerEdits");
    size_t variables = count_of(common, "env"), mounts = count_of(common, "mounts"),
           nodes = count_of(common, "deviceNodes");
    int code;

    for (size_t i = 0; i < count; i++) {
        const json_t *edits = cards->card[chosen[i]].edits;

        variables += count_of(edits, "env");
        mounts += count_of(edits, "mounts");
        nodes += count_of(edits, "deviceNodes");
    }
    answer->environment = pool_take(pool, variables, sizeof(void *));
    answer->mounts = pool_take(pool, mounts, sizeof(void *));
    answer->nodes = pool_take(pool, nodes, sizeof(void *));
    if (answer->environment == NULL || answer->mounts == NULL || answer->nodes == NULL)
        return -ENOMEM;
    code = add_edits(pool, answer, common);
    for (size_t i = 0; i < count && code == 0; i++)
        code = add_edits(pool, answer, cards->card[chosen[i]].edits);
    return code;
}

bool edits_have_hooks(const struct cards *cards)
{
    return count_of(json_object_get(cards->spec, "containerEdits"), "hooks") != 0;
}

bool edits_have_groups(const struct cards *cards)
{
    return count_of(json_object_get(cards->spec, "containerEdits"), "additionalGids") != 0;
}
