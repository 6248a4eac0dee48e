/* Packets of the batch in the making: small jobs that share one entry of the queue.
 *
 * What a packet is, and what becomes of it, is told in functions/contract.lua. A job that may
 * travel with others gets its id here, once it is known with whom, and its frame once it is
 * written. Read next: front_submit.c. */
#include "queue/front.h"

#include "base/text.h"
#include "queue/piece.h"

#include <string.h>

#define PIECES_MOST (64 * BLASD_MIB) /* batches are full long before */

static bool same_packet(const struct front_packet *a, const struct front_packet *b) {
    return a->id[0] == b->id[0] && a->cost == b->cost && a->stream == b->stream &&
           a->asked == b->asked && a->note_len == b->note_len &&
           memcmp(a->note, b->note, a->note_len) == 0 && blasd_key_equal(&a->company, &b->company);
}

static bool has_room(const struct front_packets *packets, const struct front_packet *packet) {
    return packet->jobs < packets->jobs_most &&
           (uint64_t)(packet->jobs + 1) * packet->cost <= packet->bytes_most;
}

void front_packet_join(struct front_packets *packets, const struct front_packet *like,
                       char id[BLASD_ID_LEN + 1]) {
    struct front_packet *packet;
    struct blasd_buf kept;
    for (int i = 0; i < packets->count; i++) {
        packet = &packets->of[i];
        if (!has_room(packets, packet) || !same_packet(packet, like)) continue;
        memcpy(id, packet->id, BLASD_ID_PACKET);
        blasd_id_renew(id);
        return;
    }
    if (packets->count == FRONT_PACKETS) return; /* it keeps the id it has, and travels alone */
    packet = &packets->of[packets->count++];
    kept = packet->pieces;
    *packet = *like;
    packet->pieces = kept;
    packet->jobs = 0;
    blasd_buf_reset(&packet->pieces);
    memcpy(packet->id, id, sizeof packet->id);
}

struct front_packet *front_packet_of(struct front_packets *packets, const char *id) {
    for (int i = packets->count; i-- > 0;)
        if (memcmp(packets->of[i].id, id, BLASD_ID_PACKET) == 0) return &packets->of[i];
    return NULL;
}

int front_packet_add(struct front_packets *packets, struct front_packet *packet, const char *id,
                     const void *frame, size_t len) {
    if (blasd_piece_add(&packet->pieces, id, frame, len) != 0) return -1;
    if (packet->jobs == 0) memcpy(packet->id, id, sizeof packet->id);
    packet->jobs++;
    packets->bytes += BLASD_PIECE_HEAD + len;
    return 0;
}

void front_packet_write(const struct front_packet *packet, struct front_call *call) {
    const char *pieces = packet->pieces.data;
    char cost[2 * BLASD_TEXT_NUMBER];
    size_t len = blasd_text_number(cost, packet->cost);
    if (packet->jobs == 1) { /* a packet of one is a job */
        front_call_arg(call, packet->id, BLASD_ID_LEN);
        front_call_arg(call, pieces + BLASD_PIECE_HEAD, packet->pieces.len - BLASD_PIECE_HEAD);
    } else {
        front_call_arg(call, packet->id, BLASD_ID_PACKET);
        front_call_arg(call, pieces, packet->pieces.len);
        cost[len++] = ' ';
        len += blasd_text_number(cost + len, (uint64_t)packet->jobs);
    }
    front_call_number(call, packet->stream);
    front_call_arg(call, cost, len);
}

void front_packets_init(struct front_packets *packets, uint64_t claim_jobs) {
    uint64_t half = claim_jobs / 2;
    packets->jobs_most = half < FRONT_PACKET_JOBS ? (int)half : FRONT_PACKET_JOBS;
    for (int i = 0; i < FRONT_PACKETS; i++) blasd_buf_init(&packets->of[i].pieces, PIECES_MOST);
}

void front_packets_reset(struct front_packets *packets) {
    packets->count = 0;
    packets->bytes = 0;
}

void front_packets_free(struct front_packets *packets) {
    for (int i = 0; i < FRONT_PACKETS; i++) blasd_buf_release(&packets->of[i].pieces);
    front_packets_reset(packets);
}
