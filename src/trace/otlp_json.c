/* Spans as the JSON form of OTLP's ExportTraceServiceRequest: ids in hexadecimal, 64-bit numbers as
 * texts. Read next: otlp.c. */
#include "base/hex.h"
#include "trace/otlp.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int put_string(struct blasd_buf *out, const char *text) {
    int failed = blasd_buf_puts(out, "\"");
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\')
            failed |= blasd_buf_printf(out, "\\%c", *at);
        else if (*at < ' ' || *at >= 0x7f) /* no text of ours has others */
            failed |= blasd_buf_puts(out, "?");
        else
            failed |= blasd_buf_add(out, at, 1);
    }
    return failed | blasd_buf_puts(out, "\"");
}

static int put_id(struct blasd_buf *out, const char *name, const uint8_t *bytes, size_t len) {
    char text[2 * BLASD_TRACE_ID + 1], *at = text;
    for (size_t i = 0; i < len; i++) at = blasd_hex_write(at, bytes[i], 2);
    *at = '\0';
    return blasd_buf_printf(out, "\"%s\":\"%s\"", name, text);
}

static int put_attribute(struct blasd_buf *out, const char *key, const char *text, int64_t number) {
    int failed = blasd_buf_printf(out, "{\"key\":\"%s\",\"value\":{", key);
    if (text[0] == '\0')
        failed |= blasd_buf_printf(out, "\"intValue\":\"%" PRId64 "\"}}", number);
    else
        failed |= blasd_buf_puts(out, "\"stringValue\":") | put_string(out, text) |
                  blasd_buf_puts(out, "}}");
    return failed;
}

static int put_links(struct blasd_buf *out, const struct blasd_span *span) {
    int failed = 0;
    if (span->link_count == 0) return 0;
    failed |= blasd_buf_puts(out, ",\"links\":[");
    for (int i = 0; i < span->link_count; i++) {
        failed |= blasd_buf_puts(out, i == 0 ? "{" : ",{");
        failed |= put_id(out, "traceId", span->links[i].trace, BLASD_TRACE_ID);
        failed |= blasd_buf_puts(out, ",");
        failed |= put_id(out, "spanId", span->links[i].span, BLASD_SPAN_ID);
        failed |= blasd_buf_puts(out, "}");
    }
    return failed | blasd_buf_printf(out, "],\"droppedLinksCount\":%d", span->links_left_out);
}

static int put_span(struct blasd_buf *out, const struct blasd_span *span) {
    static const uint8_t none[BLASD_SPAN_ID];
    int failed = blasd_buf_puts(out, "{");
    failed |= put_id(out, "traceId", span->trace, BLASD_TRACE_ID);
    failed |= blasd_buf_puts(out, ",");
    failed |= put_id(out, "spanId", span->id, BLASD_SPAN_ID);
    if (memcmp(span->parent, none, BLASD_SPAN_ID) != 0) {
        failed |= blasd_buf_puts(out, ",");
        failed |= put_id(out, "parentSpanId", span->parent, BLASD_SPAN_ID);
    }
    failed |= blasd_buf_puts(out, ",\"name\":") | put_string(out, span->name);
    failed |= blasd_buf_printf(out,
                               ",\"kind\":%d,\"startTimeUnixNano\":\"%" PRId64
                               "000\",\"endTimeUnixNano\":\"%" PRId64 "000\",\"attributes\":[",
                               (int)span->kind, span->start_us, span->end_us);
    for (int i = 0; i < span->attribute_count; i++) {
        const struct blasd_span_attribute *attribute = &span->attributes[i];
        if (i > 0) failed |= blasd_buf_puts(out, ",");
        failed |= put_attribute(out, attribute->key, attribute->text, attribute->number);
    }
    failed |= blasd_buf_puts(out, "]") | put_links(out, span);
    if (span->error != NULL)
        failed |= blasd_buf_puts(out, ",\"status\":{\"code\":2,\"message\":") |
                  put_string(out, span->error) | blasd_buf_puts(out, "}");
    return failed | blasd_buf_puts(out, "}");
}

int blasd_otlp_json(const struct blasd_otlp_options *who, const struct blasd_span *spans, int count,
                    struct blasd_buf *out) {
    int failed = blasd_buf_puts(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    failed |= put_attribute(out, "service.name", who->part, 0) | blasd_buf_puts(out, ",");
    failed |= put_attribute(out, "service.version", who->version, 0) | blasd_buf_puts(out, ",");
    failed |= put_attribute(out, "service.instance.id", who->instance, 0);
    failed |= blasd_buf_puts(out, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"blasd\"},\"spans\":[");
    for (int i = 0; i < count; i++) {
        if (i > 0) failed |= blasd_buf_puts(out, ",");
        failed |= put_span(out, &spans[i]);
    }
    return failed | blasd_buf_puts(out, "]}]}]}") ? -1 : 0;
}
