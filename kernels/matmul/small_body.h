/* A small product: tiles of up to ROWS rows and two vectors of columns, whose sums stay in
 * registers over the whole depth. The elements of a are read one by one, whichever way it lies; two
 * vectors of each row of b, from where b lies or, where its rows are not dense or end early, from a
 * copy of these columns.
 *
 * Included once for each precision, with REAL, LANES (of a vector), NAME(name), VEC and what is
 * done with vectors: FMA(a, b, c) = a b + c, SPLAT, LOAD, STORE. Each sum runs over the
 * depth in order. */

#define INLINE static inline __attribute__((always_inline))
#define ROWS 6
#define WIDE (2 * LANES)

/* Writes `count` columns of a row of sums. */
INLINE void NAME(put)(VEC s0, VEC s1, REAL *c, int64_t count) {
    REAL edge[WIDE], *to = count < WIDE ? edge : c;
    STORE(to, s0);
    STORE(to + LANES, s1);
    if (count < WIDE) memcpy(c, edge, (size_t)count * sizeof *c);
}

/* `rows` rows from row i on, and `count` columns from column j on; b's lie at `b`, `step` elements
 * from row to row. */
INLINE void NAME(tile)(const struct blasd_small *p, int rows, int64_t i, int64_t j, const REAL *b,
                       int64_t step, int64_t count) {
    const int64_t row = p->a.row, column = p->a.column;
    const REAL *a = (const REAL *)p->a.data + i * row;
    REAL *c = (REAL *)p->c + i * p->n + j;
    VEC s0[ROWS], s1[ROWS];
    for (int r = 0; r < rows; r++) s0[r] = s1[r] = SPLAT(0);
    for (int64_t l = 0; l < p->k; l++, b += step, a += column) {
        VEC b0 = LOAD(b), b1 = LOAD(b + LANES);
        for (int r = 0; r < rows; r++) {
            VEC x = SPLAT(a[r * row]);
            s0[r] = FMA(x, b0, s0[r]);
            s1[r] = FMA(x, b1, s1[r]);
        }
    }
    for (int r = 0; r < rows; r++) NAME(put)(s0[r], s1[r], c + r * p->n, count);
}

/* All rows of `count` columns. */
static void NAME(panel)(const struct blasd_small *p, int64_t j, const REAL *b, int64_t step,
                        int64_t count, struct fetching *soon) {
    int64_t i = 0;
    for (; i + ROWS <= p->m; i += ROWS) {
        fetch(soon);
        NAME(tile)(p, ROWS, i, j, b, step, count);
    }
    switch (p->m - i) {
    case 5: NAME(tile)(p, 5, i, j, b, step, count); break;
    case 4: NAME(tile)(p, 4, i, j, b, step, count); break;
    case 3: NAME(tile)(p, 3, i, j, b, step, count); break;
    case 2: NAME(tile)(p, 2, i, j, b, step, count); break;
    case 1: NAME(tile)(p, 1, i, j, b, step, count); break;
    default: break;
    }
}

void NAME(blasd_small)(const struct blasd_small *p) {
    REAL copy[MOST_SIDE * WIDE] __attribute__((aligned(64)));
    const REAL *b = p->b.data;
    struct fetching soon = fetching_of(p, (p->n + WIDE - 1) / WIDE * (p->m / ROWS + 1));
    for (int64_t j = 0; j < p->n; j += WIDE, b += WIDE * p->b.column) {
        int64_t count = p->n - j < WIDE ? p->n - j : WIDE;
        if (p->b.column == 1 && count == WIDE) {
            NAME(panel)(p, j, b, p->b.row, count, &soon);
            continue;
        }
        for (int64_t l = 0; l < p->k; l++) {
            for (int64_t c = 0; c < count; c++)
                copy[l * WIDE + c] = b[l * p->b.row + c * p->b.column];
            for (int64_t c = count; c < WIDE; c++) copy[l * WIDE + c] = 0;
        }
        NAME(panel)(p, j, copy, WIDE, count, &soon);
    }
}

#undef INLINE
#undef ROWS
#undef WIDE
