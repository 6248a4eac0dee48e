/* The keys that sign tokens, from a URL. rhonabwy can ask for them too, but waits for ever for who
 * does not answer, follows from https to http, and takes no application/jwk-set+json. */
#ifndef BLASD_AUTH_KEY_URL_H
#define BLASD_AUTH_KEY_URL_H

#include "base/buf.h"

#define AUTH_URL_WHY 100

/* To be called once, before there are other threads that do. */
void auth_url_init(void);
/* Adds what is there to `text`, as far as its most allows, and a zero; -1: nothing, and why. It
 * may take some seconds. */
int auth_url_read(const char *url, struct blasd_buf *text, char why[AUTH_URL_WHY]);

#endif
