/* From bytes and a report to outputs by name. */
#include "wire/graph_out.h"

#include <string.h>

bool blasd_graph_folded(const struct blasd_record *record) {
    return blasd_state_final(record->state) && record->graph == NULL &&
           blasd_record_has(record, BLASD_GRAPH_OUT_REPORT) &&
           strcmp(record->op, blasd_op_graph.name) == 0;
}

int blasd_graph_unfold(struct blasd_record *record, const void *payload,
                       struct blasd_graph_report **ret, struct blasd_err *err) {
    struct blasd_output bytes = record->outputs[BLASD_GRAPH_OUT_RESULTS];
    const struct blasd_output *report = &record->outputs[BLASD_GRAPH_OUT_REPORT];
    int code;
    bool failed = record->state != BLASD_SUCCEEDED;
    if (payload == NULL || record->output_count <= BLASD_GRAPH_OUT_REPORT ||
        (bytes.tensor.rank < 0 && !failed) || report->tensor.rank < 0)
        return blasd_fail(err, BLASD_E_internal_error, "", "the record of a graph has no report");
    if (bytes.tensor.rank < 0) bytes = (struct blasd_output){.bytes = 0};
    code = blasd_graph_report_read((const unsigned char *)payload + report->offset,
                                   (size_t)report->bytes, bytes.bytes, ret, err);
    if (code != 0) return code;
    record->output_count = (*ret)->output_count;
    for (int i = 0; i < record->output_count; i++) {
        record->outputs[i] = (*ret)->outputs[i];
        record->outputs[i].offset += bytes.offset;
    }
    record->graph = *ret;
    return 0;
}
