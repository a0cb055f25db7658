/* SPDX-License-Identifier: Apache-2.0
 *
 * cdi_yaml.c: makes JSON of the first document of a YAML text, by libyaml. Aliases, tags, texts with
 * NUL, and keys that are no scalars, are refused. Recursion ends at DEPTH_MOST. No state.
 */
#include "lockd/ctl/cdi_yaml.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define DEPTH_MOST 16

struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the last one */
    unsigned depth;
    struct gs_err *err;
};

/* The parser itself may be lines ahead of the event. */
static json_t *refuse_event(struct reader *reader, const char *why)
{
    gs_err_set(reader->err, -EINVAL, "line %zu: %s", reader->event.start_mark.line + 1, why);
    return NULL;
}

/* Reads the next event. False: the text is not valid. */
static bool read_event(struct reader *reader)
{
    yaml_event_delete(&reader->event);
    if (yaml_parser_parse(&reader->parser, &reader->event) != 0)
        return true;
    gs_err_set(reader->err, -EINVAL, "line %zu: %s", reader->parser.mark.line + 1,
               reader->parser.problem != NULL ? reader->parser.problem : "no memory");
    return false;
}

static json_t *scalar_json(const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    const size_t length = event->data.scalar.length;
    char *end;
    long long number;

    if (event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return json_stringn(text, length);
    if (length == 0)
        return json_null();
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        return json_boolean(*text == 't');
    errno = 0;
    number = strtoll(text, &end, 10);
    return strspn(text, "-0123456789") == length && *end == '\0' && errno == 0
               ? json_integer(number)
               : json_stringn(text, length);
}

/* A scalar without a tag, and with nothing behind a NUL. */
static bool is_text(const yaml_event_t *event)
{
    return event->type == YAML_SCALAR_EVENT && event->data.scalar.tag == NULL &&
           strlen((const char *)event->data.scalar.value) == event->data.scalar.length;
}

/* The value that begins with the last event. */
static json_t *read_value(struct reader *reader)
{
    const yaml_event_type_t type = reader->event.type;
    json_t *all;

    if (is_text(&reader->event))
        return scalar_json(&reader->event);
    if (type != YAML_SEQUENCE_START_EVENT && type != YAML_MAPPING_START_EVENT)
        return refuse_event(reader, "this form of YAML is not understood: write JSON instead");
    if (++reader->depth > DEPTH_MOST)
        return refuse_event(reader, "too deep");
    all = type == YAML_SEQUENCE_START_EVENT ? json_array() : json_object();
    while (read_event(reader)) {
        char *key = NULL;
        json_t *item = NULL;
        int code = -1;

        if (reader->event.type == YAML_SEQUENCE_END_EVENT ||
            reader->event.type == YAML_MAPPING_END_EVENT) {
            reader->depth--;
            return all;
        }
        if (type == YAML_SEQUENCE_START_EVENT) {
            item = read_value(reader);
            code = json_array_append_new(all, item);
        } else if (is_text(&reader->event)) {
            key = strdup((const char *)reader->event.data.scalar.value);
            item = read_event(reader) ? read_value(reader) : NULL;
            code = json_object_set_new(all, key, item);
        } else {
            refuse_event(reader, "a key is no word");
        }
        free(key);
        if (code != 0)
            break;
    }
    json_decref(all);
    return NULL;
}

json_t *cdi_yaml_parse(const char *text, struct gs_err *err)
{
    struct reader reader = {.err = err};
    json_t *value = NULL;

    if (yaml_parser_initialize(&reader.parser) == 0)
        return NULL;
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, strlen(text));
    while (read_event(&reader)) {
        if (reader.event.type == YAML_STREAM_START_EVENT ||
            reader.event.type == YAML_DOCUMENT_START_EVENT)
            continue;
        value = read_value(&reader);
        break;
    }
    /* then the end of the document, and that of the text or another document */
    if (value != NULL && (!read_event(&reader) || !read_event(&reader))) {
        json_decref(value);
        value = NULL;
    }
    yaml_event_delete(&reader.event);
    yaml_parser_delete(&reader.parser);
    return value;
}
