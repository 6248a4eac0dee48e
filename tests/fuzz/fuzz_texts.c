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
    struct blasd_err err = {0};
    char *first, *second = NULL;
    if (blasd_cost_read(text, len, &cost, &err) != 0) return;
    first = blasd_cost_write(&cost);
    if (first != NULL) {
        require(blasd_cost_read(first, strlen(first), &again, &err) == 0);
        second = blasd_cost_write(&again);
        require(second == NULL || strcmp(first, second) == 0);
    }
    free(first);
    free(second);
}

static void try_address(const char *text) {
    struct blasd_link_address address;
    struct blasd_err err = {0};
    if (blasd_link_parse(text, "q", &address, &err) != 0) return;
    require(strnlen(address.path, sizeof address.path) < sizeof address.path);
    require((address.path[0] != '\0') != (address.count > 0));
    require(address.count <= BLASD_LINK_PLACES);
    for (int i = 0; i < address.count; i++) {
        const struct blasd_link_place *place = &address.places[i];
        size_t len = strnlen(place->host, sizeof place->host);
        require(len > 0 && len < sizeof place->host);
        require(place->port > 0 && place->port < 65536);
    }
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
    struct blasd_link_address address;
    struct blasd_err err = {0};
    if (text == NULL) return 0;
    if (len > 0) memcpy(text, bytes, len);
    text[len] = '\0';
    try_cost(text, len);
    try_address(text);
    try_limit(text);
    try_accept(text);
    if (blasd_id_valid(text)) require(strlen(text) == BLASD_ID_LEN);
    if (blasd_link_parse("redis://h", text, &address, &err) == 0)
        require(strlen(text) < BLASD_LINK_NAME_MAX);
    free(text);
    return 0;
}
