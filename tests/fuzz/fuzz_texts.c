/* Small texts that come from elsewhere: costs as a worker tells and keeps them, addresses of Redis,
 * limits, lists of formats, ids. What was taken writes and reads back the same. */
#include "base/id.h"
#include "base/limits.h"
#include "redis/redis_link.h"
#include "wire/answer.h"
#include "wire/cost_text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void require(bool holds) {
    if (!holds) abort();
}

static void try_cost(const char *text, size_t len) {
    static struct blasd_cost cost, again;
    struct blasd_buf first, second;
    struct blasd_err err = {0};
    if (blasd_cost_read(text, len, &cost, &err) != 0) return;
    blasd_buf_init(&first, BLASD_COST_TEXT_MOST);
    blasd_buf_init(&second, BLASD_COST_TEXT_MOST);
    if (blasd_cost_write(&cost, &first) == 0) {
        require(blasd_cost_read(first.data, first.len, &again, &err) == 0);
        require(blasd_cost_write(&again, &second) == 0);
        require(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
    }
    blasd_buf_release(&first);
    blasd_buf_release(&second);
}

static void try_address(const char *text) {
    struct blasd_link_address address;
    struct blasd_err err = {0};
    if (blasd_link_parse(text, &address, &err) != 0) return;
    require(strnlen(address.path, sizeof address.path) < sizeof address.path);
    require(strnlen(address.host, sizeof address.host) < sizeof address.host);
    require((address.path[0] != '\0') != (address.host[0] != '\0'));
    require(address.path[0] != '\0' || (address.port > 0 && address.port < 65536));
}

static void try_limit(const char *text) {
    struct blasd_limits limits;
    struct blasd_err err = {0};
    blasd_limits_init(&limits);
    if (blasd_limits_set(&limits, text, &err) != 0) return;
    for (int i = 0; blasd_limits_info(i) != NULL; i++) {
        const struct blasd_limit_info *info = blasd_limits_info(i);
        uint64_t value = blasd_limits_get(&limits, i);
        require(value == info->preset || (value >= info->least && value <= info->most));
    }
}

static void try_accept(const char *text) {
    struct blasd_accept accept = {0};
    enum blasd_format format;
    blasd_accept_add(&accept, text);
    blasd_accept_add(&accept, text);
    blasd_accept_choose(&accept, true, &format);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len) {
    char *text = malloc(len + 1);
    struct blasd_err err = {0};
    if (text == NULL) return 0;
    if (len > 0) memcpy(text, bytes, len);
    text[len] = '\0';
    try_cost(text, len);
    try_address(text);
    try_limit(text);
    try_accept(text);
    if (blasd_id_valid(text)) require(strlen(text) == BLASD_ID_LEN);
    if (blasd_link_check_name(text, &err) == 0) require(strlen(text) < BLASD_LINK_NAME_MAX);
    free(text);
    return 0;
}
