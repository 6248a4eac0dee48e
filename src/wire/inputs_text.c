/* A JSON object of inputs, as a text of its own. */
#include "wire/inputs_text.h"

#include "base/buf.h"
#include "wire/json_tensor.h"

#include <string.h>

struct pass {
    struct blasd_json_text text;
    struct blasd_named_inputs *inputs;
};

static int read_input(void *arg, const char *quote, const char *name, const char *value,
                      const char **next, struct blasd_err *err) {
    struct pass *pass = arg;
    struct blasd_named_input *to;
    int rc = blasd_named_inputs_add(pass->inputs, name, strlen(name), &to, err);
    (void)quote;
    if (rc != 0) return rc;
    return blasd_json_tensor(&pass->text, value, pass->inputs->sink, to, next, err);
}

static int read_all(struct pass *pass, struct blasd_err *err) {
    const char *p = blasd_json_space(pass->text.start);
    int rc;
    if (*p != '{')
        return blasd_fail(err, BLASD_E_invalid_field, BLASD_INPUTS_TEXT,
                          "inputs must be the text of a JSON object, of inputs by name");
    if ((rc = blasd_json_members(&pass->text, p, read_input, pass, &p, err)) != 0) return rc;
    return blasd_json_end(&pass->text, p, "the object of inputs", err);
}

int blasd_inputs_text(struct blasd_named_inputs *inputs, const struct blasd_limits *limits,
                      const char *text, size_t len, struct blasd_err *err) {
    struct pass pass = {.inputs = inputs};
    struct blasd_buf copy;
    int rc;
    if (len > limits->envelope_bytes)
        return blasd_fail(err, BLASD_E_body_too_large, BLASD_INPUTS_TEXT,
                          "the text of inputs is larger than %llu bytes, the limit envelope_bytes",
                          (unsigned long long)limits->envelope_bytes);
    rc = blasd_json_hold(&copy, text, len, (int)limits->json_depth, &pass.text, err);
    if (rc == 0) rc = read_all(&pass, err);
    if (rc != 0 && err->code == BLASD_E_malformed_json) { /* which the body is not */
        struct blasd_err why = *err;
        rc = blasd_fail(err, BLASD_E_invalid_field, BLASD_INPUTS_TEXT,
                        "inputs is not valid JSON: %.160s", why.detail);
    }
    blasd_buf_release(&copy);
    return rc;
}
