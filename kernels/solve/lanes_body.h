/* Many small systems at once, one in each lane of the vector registers: every number of the
 * algorithm is a vector that holds that number for each system, so that pivoting, the condition
 * estimate and the refinement run at full width without a branch.
 *
 * Included once for each precision and instruction set, with REAL, INT, UINT, VBYTES, UNIT, SAFE,
 * LANE(name), TALL (rows of a tile), FNMA(a, b, c) (c - a b, fused where the machine can), for
 * float64 FUSED(a, b, c) (fused always), and ZIP_LOW and ZIP_HIGH (the halves of two vectors
 * interleaved) and PICK(base, indices) (a vector of base[index]).
 *
 * A lane gives up (leave_to_all) where it would need what only the engine does: scaling, more than
 * one step of refinement, QR. README.md has the method. */

typedef REAL LANE(vec) __attribute__((vector_size(VBYTES), may_alias));
typedef INT LANE(ivec) __attribute__((vector_size(VBYTES), may_alias));
#define vec LANE(vec)
#define ivec LANE(ivec)
#define LANES ((int)(VBYTES / sizeof(REAL)))
#define INLINE static inline __attribute__((always_inline))

struct LANE(lanes) {
    int64_t n;
    vec *matrix;            /* as it lies in memory: element (i, j) at [i * row + j * column] */
    int64_t row, column;    /* one of them is 1, the other n */
    vec *lu;                /* row-major, rows `ld` apart */
    int64_t ld;             /* odd, or a column would lie in few sets of the cache */
    vec *inverse;           /* n: 1 / U(i, i) */
    vec *b, *x, *r, *t, *y; /* n each */
    int32_t *pivots;        /* n x LANES: the swaps */
    ivec *order, *back;     /* n each: the swaps as indices */
    vec contraction;        /* by how much refinement shrinks the error, at worst or so */
    vec norm_1, norm_inf;   /* of the matrices */
    ivec zero_pivot;        /* 0, or the first zero pivot, from 1 */
};

INLINE vec LANE(splat)(REAL value) {
    return value - (vec){0};
}
INLINE vec LANE(size)(vec a) {
    return (vec)((ivec)a & ((ivec){0} + (INT)(((UINT)-1) >> 1)));
}
INLINE vec LANE(select)(ivec mask, vec yes, vec no) {
    return (vec)((mask & (ivec)yes) | (~mask & (ivec)no));
}
INLINE vec LANE(larger)(vec a, vec b) {
    return LANE(select)((ivec)(a > b), a, b);
}

/* start - sum of a[p * step] * x[p] */
INLINE vec LANE(dot)(const vec *a, int64_t step, const vec *x, int64_t m, vec start) {
    vec s0 = start, s1 = {0}, s2 = {0}, s3 = {0};
    int64_t p = 0;
    for (; p + 4 <= m; p += 4) {
        s0 = FNMA(a[p * step], x[p], s0);
        s1 = FNMA(a[(p + 1) * step], x[p + 1], s1);
        s2 = FNMA(a[(p + 2) * step], x[p + 2], s2);
        s3 = FNMA(a[(p + 3) * step], x[p + 3], s3);
    }
    for (; p < m; p++) s0 = FNMA(a[p * step], x[p], s0);
    return (s0 + s1) + (s2 + s3);
}

/* Brings `count` dense elements of each system side by side: blocks of LANES
 * by LANES are turned by interleaving their halves as often as it takes. */
static void LANE(gather)(const REAL *const *from, int64_t count, vec *to) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        vec a[LANES], b[LANES];
        for (int l = 0; l < LANES; l++) memcpy(&a[l], from[l] + i, sizeof a[l]);
        for (int width = 1; width < LANES; width *= 2) {
            for (int l = 0; l < LANES / 2; l++) {
                b[2 * l] = ZIP_LOW(a[l], a[l + LANES / 2]);
                b[2 * l + 1] = ZIP_HIGH(a[l], a[l + LANES / 2]);
            }
            for (int l = 0; l < LANES; l++) a[l] = b[l];
        }
        for (int l = 0; l < LANES; l++) to[i + l] = a[l];
    }
    for (; i < count; i++)
        for (int l = 0; l < LANES; l++) ((REAL *)(to + i))[l] = from[l][i];
}

/* Row sums and column sums decide both norms and whether the matrix needs scaling; a mask of the
 * lanes that do. */
static ivec LANE(measure)(struct LANE(lanes) * w) {
    int64_t n = w->n;
    vec most_row = {0}, most_column = {0}, least_row, least_column;
    ivec bad;
    least_row = least_column = LANE(splat)((REAL)INFINITY);
    for (int64_t j = 0; j < n; j++) w->t[j] = (vec){0};
    for (int64_t i = 0; i < n; i++) {
        vec row = {0};
        for (int64_t j = 0; j < n; j++) {
            vec size = LANE(size)(w->lu[i * w->ld + j]);
            row += size;
            w->t[j] += size;
        }
        most_row = LANE(larger)(row, most_row);
        least_row = LANE(select)((ivec)(row < least_row), row, least_row);
    }
    for (int64_t j = 0; j < n; j++) {
        most_column = LANE(larger)(w->t[j], most_column);
        least_column = LANE(select)((ivec)(w->t[j] < least_column), w->t[j], least_column);
    }
    w->norm_1 = most_column;
    w->norm_inf = most_row;
    bad = (ivec)(least_row < most_row * (REAL)0x1p-8) |
          (ivec)(least_column < most_column * (REAL)0x1p-8) |
          ~(ivec)(most_row < LANE(splat)((REAL)SAFE)) |
          ~(ivec)(most_row > LANE(splat)(1 / (REAL)SAFE));
    return bad;
}

/* Swaps row k with each lane's own pivot row. */
INLINE void LANE(swap_rows)(struct LANE(lanes) * w, int64_t k) {
    int64_t n = w->n;
    REAL *base = (REAL *)w->lu;
    for (int l = 0; l < LANES; l++) {
        REAL *up = base + k * w->ld * LANES + l;
        REAL *down = base + w->pivots[k * LANES + l] * w->ld * LANES + l;
        if (up == down) continue;
        for (int64_t j = 0; j < n; j++) {
            REAL keep = up[j * LANES];
            up[j * LANES] = down[j * LANES];
            down[j * LANES] = keep;
        }
    }
}

/* Columns j .. j+width of rows `from` .. `to`, less the product of what is left of them with what
 * is above: `depth` terms. */
INLINE void LANE(update_rows)(struct LANE(lanes) * w, int64_t j, int width, int64_t from,
                              int64_t to, int64_t depth) {
    const int64_t ld = w->ld;
    vec *const lu = w->lu;
    const vec *const above = lu + j;
    int64_t i = from;
    for (; i + TALL <= to; i += TALL) {
        vec sum[TALL][4];
        for (int r = 0; r < TALL; r++)
            for (int c = 0; c < width; c++) sum[r][c] = lu[(i + r) * ld + j + c];
        for (int64_t p = 0; p < depth; p++)
            for (int r = 0; r < TALL; r++) {
                vec left = lu[(i + r) * ld + p];
                for (int c = 0; c < width; c++)
                    sum[r][c] = FNMA(left, above[p * ld + c], sum[r][c]);
            }
        for (int r = 0; r < TALL; r++)
            for (int c = 0; c < width; c++) lu[(i + r) * ld + j + c] = sum[r][c];
    }
    for (; i < to; i++) {
        vec sum[4];
        for (int c = 0; c < width; c++) sum[c] = lu[i * ld + j + c];
        for (int64_t p = 0; p < depth; p++) {
            vec left = lu[i * ld + p];
            for (int c = 0; c < width; c++) sum[c] = FNMA(left, above[p * ld + c], sum[c]);
        }
        for (int c = 0; c < width; c++) lu[i * ld + j + c] = sum[c];
    }
}

/* LU of columns j .. j+width, all to their left being done. */
INLINE void LANE(factor_panel)(struct LANE(lanes) * w, int64_t j, int width) {
    const int64_t n = w->n, ld = w->ld;
    vec *const lu = w->lu;
    vec right[4];
    /* rows of U: what lies above the block of four rows first, then the block's own triangle */
    for (int64_t i = 0; i < j; i += 4) {
        LANE(update_rows)(w, j, width, i, i + 4, i);
        for (int64_t r = i + 1; r < i + 4; r++)
            for (int64_t p = i; p < r; p++)
                for (int c = 0; c < width; c++)
                    lu[r * ld + j + c] =
                        FNMA(lu[r * ld + p], lu[p * ld + j + c], lu[r * ld + j + c]);
    }
    LANE(update_rows)(w, j, width, j, n, j);
    for (int64_t k = j; k < j + width; k++) {
        vec best = LANE(size)(lu[k * ld + k]), pivot;
        ivec at = (ivec){0} + (INT)k, zero;
        for (int64_t i = k + 1; i < n; i++) {
            vec size = LANE(size)(lu[i * ld + k]);
            ivec more = (ivec)(size > best);
            best = LANE(select)(more, size, best);
            at = (more & ((ivec){0} + (INT)i)) | (~more & at);
        }
        for (int l = 0; l < LANES; l++) w->pivots[k * LANES + l] = (int32_t)at[l];
        LANE(swap_rows)(w, k);
        pivot = lu[k * ld + k];
        zero = (ivec)(pivot == (vec){0});
        w->zero_pivot |= zero & (ivec)(w->zero_pivot == (ivec){0}) & ((ivec){0} + (INT)(k + 1));
        pivot = LANE(select)(zero, LANE(splat)(1), pivot);
        pivot = 1 / pivot;
        w->inverse[k] = pivot;
        for (int c = 1; c < width; c++) right[c] = lu[k * ld + j + c];
        for (int64_t i = k + 1; i < n; i++) {
            vec left = lu[i * ld + k] * pivot;
            lu[i * ld + k] = left;
            for (int c = 1; c < width; c++)
                if (j + c > k) lu[i * ld + j + c] = FNMA(left, right[c], lu[i * ld + j + c]);
        }
    }
}

static void LANE(factor)(struct LANE(lanes) * w) {
    int64_t n = w->n, j = 0;
    w->zero_pivot = (ivec){0};
    for (; j + 4 <= n; j += 4) LANE(factor_panel)(w, j, 4);
    switch (n - j) {
    case 3: LANE(factor_panel)(w, j, 3); break;
    case 2: LANE(factor_panel)(w, j, 2); break;
    case 1: LANE(factor_panel)(w, j, 1); break;
    default: break;
    }
}

/* From the swaps to where each element comes from, going in and coming back, as indices of REALs.
 */
static void LANE(take_order)(struct LANE(lanes) * w) {
    INT *order = (INT *)w->order, *back = (INT *)w->back;
    for (int64_t i = 0; i < w->n; i++)
        for (int l = 0; l < LANES; l++) order[i * LANES + l] = (INT)(i * LANES + l);
    for (int64_t k = 0; k < w->n; k++)
        for (int l = 0; l < LANES; l++) {
            int64_t other = w->pivots[k * LANES + l] * LANES + l;
            INT keep = order[k * LANES + l];
            order[k * LANES + l] = order[other];
            order[other] = keep;
        }
    for (int64_t i = 0; i < w->n; i++)
        for (int l = 0; l < LANES; l++) back[order[i * LANES + l]] = (INT)(i * LANES + l);
}

/* Substitution goes row by row, and each row needs the one before: that one's term is kept out of
 * the sum, whose other terms are ready long before. */

/* x := A^-1 x */
static void LANE(solve)(struct LANE(lanes) * w, vec *x) {
    const int64_t n = w->n, ld = w->ld;
    const vec *const lu = w->lu;
    vec *const y = w->y;
    vec last;
    for (int64_t i = 0; i < n; i++) y[i] = x[i];
    for (int64_t i = 0; i < n; i++) x[i] = PICK((const REAL *)y, w->order[i]);
    last = x[0];
    for (int64_t i = 1; i < n; i++) {
        vec sum = LANE(dot)(lu + i * ld, 1, x, i - 1, x[i]);
        x[i] = last = FNMA(lu[i * ld + i - 1], last, sum);
    }
    x[n - 1] = last = last * w->inverse[n - 1];
    for (int64_t i = n - 2; i >= 0; i--) {
        const vec *row = lu + i * ld + i + 1;
        vec sum = LANE(dot)(row + 1, 1, x + i + 2, n - 2 - i, x[i]);
        x[i] = last = FNMA(row[0], last, sum) * w->inverse[i];
    }
}

/* x := A^-T x */
static void LANE(solve_transposed)(struct LANE(lanes) * w, vec *x) {
    const int64_t n = w->n, ld = w->ld;
    const vec *const lu = w->lu;
    vec *const y = w->y;
    vec last = x[0] * w->inverse[0];
    x[0] = last;
    for (int64_t i = 1; i < n; i++) {
        vec sum = LANE(dot)(lu + i, ld, x, i - 1, x[i]);
        x[i] = last = FNMA(lu[(i - 1) * ld + i], last, sum) * w->inverse[i];
    }
    for (int64_t i = n - 2; i >= 0; i--) {
        const vec *column = lu + (i + 1) * ld + i;
        vec sum = LANE(dot)(column + ld, ld, x + i + 2, n - 2 - i, x[i]);
        x[i] = last = FNMA(column[0], last, sum);
    }
    for (int64_t i = 0; i < n; i++) y[i] = x[i];
    for (int64_t i = 0; i < n; i++) x[i] = PICK((const REAL *)y, w->back[i]);
}

INLINE vec LANE(sum_sizes)(const vec *x, int64_t n) {
    vec sum = {0};
    for (int64_t i = 0; i < n; i++) sum += LANE(size)(x[i]);
    return sum;
}

INLINE bool LANE(any)(ivec mask) {
    INT bits = 0;
    for (int l = 0; l < LANES; l++) bits |= mask[l];
    return bits != 0;
}

/* Replaces v by its signs; a mask of the lanes whose signs are those in `before`. */
INLINE ivec LANE(take_signs)(vec *v, vec *before, int64_t n) {
    ivec same = ~(ivec){0};
    for (int64_t i = 0; i < n; i++) {
        ivec negative = (ivec)(v[i] < (vec){0});
        v[i] = LANE(select)(negative, LANE(splat)(-1), LANE(splat)(1));
        same &= (ivec)(v[i] == before[i]);
        before[i] = v[i];
    }
    return same;
}

INLINE ivec LANE(largest)(const vec *v, int64_t n, vec *most) {
    ivec at = {0};
    *most = LANE(size)(v[0]);
    for (int64_t i = 1; i < n; i++) {
        vec size = LANE(size)(v[i]);
        ivec more = (ivec)(size > *most);
        *most = LANE(select)(more, size, *most);
        at = (more & ((ivec){0} + (INT)i)) | (~more & at);
    }
    return at;
}

/* The engine's estimate (engine.c, which explains it) with a mask of the lanes that still climb. */
static vec LANE(rcond)(struct LANE(lanes) * w) {
    int64_t n = w->n;
    vec *v = w->x, *sign = w->t, best, other, most, at_last;
    ivec at, last, climbing = ~(ivec){0};
    for (int64_t i = 0; i < n; i++) v[i] = LANE(splat)(1 / (REAL)n);
    LANE(solve)(w, v);
    best = LANE(sum_sizes)(v, n);
    if (n > 1) {
        for (int64_t i = 0; i < n; i++) sign[i] = (vec){0};
        LANE(take_signs)(v, sign, n);
        LANE(solve_transposed)(w, v);
        at = LANE(largest)(v, n, &most);
        for (int round = 0; round < 5 && LANE(any)(climbing); round++) {
            for (int64_t i = 0; i < n; i++)
                v[i] = LANE(select)((ivec)(at == ((ivec){0} + (INT)i)), LANE(splat)(1), (vec){0});
            LANE(solve)(w, v);
            other = LANE(sum_sizes)(v, n);
            climbing &= (ivec)(other > best);
            best = LANE(select)(climbing, other, best);
            climbing &= ~LANE(take_signs)(v, sign, n);
            if (!LANE(any)(climbing)) break;
            LANE(solve_transposed)(w, v);
            last = at;
            at = LANE(largest)(v, n, &most);
            at_last = (vec){0};
            for (int64_t i = 0; i < n; i++)
                at_last =
                    LANE(select)((ivec)(last == ((ivec){0} + (INT)i)), LANE(size)(v[i]), at_last);
            climbing &= ~(ivec)(at_last == most);
        }
        for (int64_t i = 0; i < n; i++)
            v[i] = LANE(splat)((REAL)(i % 2 == 0 ? 1 : -1) * (1 + (REAL)i / (REAL)(n - 1)));
        LANE(solve)(w, v);
        best = LANE(larger)(2 * LANE(sum_sizes)(v, n) / (3 * (REAL)n), best);
    }
    return 1 / best / w->norm_1;
}

#ifdef FUSED
/* r := b - A x, rounded once. Sums run above a constant so large that each addition's error is
 * found by two subtractions; products' errors come from the fused multiply-add. */
static void LANE(residual)(struct LANE(lanes) * w, vec size_x, vec size_b) {
    int64_t n = w->n;
    vec above = 4 * (w->norm_inf * size_x + size_b);
    for (int64_t i = 0; i < n; i++) {
        const vec *a = w->matrix + i * w->row;
        vec sum = above + w->b[i], rest = w->b[i] - (sum - above);
        for (int64_t j = 0; j < n; j++) {
            vec p = a[j * w->column] * -w->x[j], e = FUSED(a[j * w->column], -w->x[j], -p);
            vec next = sum + p;
            rest += (p - (next - sum)) + e;
            sum = next;
        }
        w->r[i] = (sum - above) + rest;
    }
}
#else
/* r := b - A x in double, in which the products are exact, rounded once. */
static void LANE(residual)(struct LANE(lanes) * w, vec size_x, vec size_b) {
    int64_t n = w->n;
    (void)size_x;
    (void)size_b;
    for (int64_t i = 0; i < n; i++) {
        double sum[LANES];
        for (int l = 0; l < LANES; l++) sum[l] = (double)w->b[i][l];
        for (int64_t j = 0; j < n; j++) {
            const REAL *a = (const REAL *)(w->matrix + i * w->row + j * w->column);
            const REAL *x = (const REAL *)(w->x + j);
            for (int l = 0; l < LANES; l++) sum[l] -= (double)a[l] * (double)x[l];
        }
        for (int l = 0; l < LANES; l++) ((REAL *)(w->r + i))[l] = (REAL)sum[l];
    }
}
#endif

INLINE vec LANE(greatest)(const vec *x, int64_t n) {
    vec most = {0};
    for (int64_t i = 0; i < n; i++) most = LANE(larger)(LANE(size)(x[i]), most);
    return most;
}

/* What the condition and the growth of the pivots make of the last digit. */
static vec LANE(contraction)(const struct LANE(lanes) * w, vec rcond) {
    vec most = w->norm_inf;
    for (int64_t i = 0; i < w->n; i++)
        for (int64_t j = i; j < w->n; j++)
            most = LANE(larger)(LANE(size)(w->lu[i * w->ld + j]), most);
    return (4 * UNIT) * most / (w->norm_inf * rcond);
}

/* One right-hand side, in w->b: solves into w->x, refines once. *error and *steps of each lane; a
 * mask of the lanes that need more than this. */
static ivec LANE(solve_column)(struct LANE(lanes) * w, bool refine, vec *error, ivec *steps) {
    int64_t n = w->n;
    vec size_b = LANE(greatest)(w->b, n), size_x, size_r, size_d, below, hidden;
    ivec good;
    for (int64_t i = 0; i < n; i++) w->x[i] = w->b[i];
    LANE(solve)(w, w->x);
    size_x = LANE(greatest)(w->x, n);
    LANE(residual)(w, size_x, size_b);
    size_r = LANE(greatest)(w->r, n);
    *steps = (ivec){0};
    good = ~(ivec){0};
    hidden = (vec){0};
    if (refine) {
        *steps = (ivec)(size_r != (vec){0}) & ((ivec){0} + 1);
        for (int64_t i = 0; i < n; i++) w->t[i] = w->r[i];
        LANE(solve)(w, w->t);
        size_d = LANE(greatest)(w->t, n);
        for (int64_t i = 0; i < n; i++) {
            vec next = w->x[i] + w->t[i];
            w->t[i] = next - w->x[i]; /* what was really added: exact, for it is far smaller */
            w->x[i] = next;
        }
        /* by which the final residual may be larger than it looks */
        hidden = (UNIT * (REAL)(n + 2)) * (w->norm_inf * size_d + size_r);
        size_r = (vec){0};
        for (int64_t i = 0; i < n; i++) {
            vec r = LANE(dot)(w->matrix + i * w->row, w->column, w->t, n, w->r[i]);
            size_r = LANE(larger)(LANE(size)(r), size_r);
        }
        /* a second correction would shrink as the first did, or a little less: nothing left? */
        good = (ivec)(size_d * LANE(larger)(size_d, size_x * w->contraction) <=
                      size_x * size_x * (UNIT / 4));
        size_x = LANE(greatest)(w->x, n);
    }
    below = w->norm_inf * size_x + size_b;
    hidden += size_r * (1 + 4 * UNIT * (REAL)(n + 2)) + below * ((REAL)(n + 2) * RESIDUAL_UNIT);
    *error = LANE(select)((ivec)(below > (vec){0}), hidden / below, (vec){0});
    if (refine) good &= (ivec)(*error <= LANE(splat)(2 * UNIT));
    good &= (ivec)(size_x < LANE(splat)((REAL)SAFE * (REAL)SAFE)) &
            (ivec)(size_b < LANE(splat)((REAL)SAFE)) &
            ((ivec)(size_b > LANE(splat)(1 / (REAL)SAFE)) | (ivec)(size_b == (vec){0}));
    return ~good;
}

static void LANE(set_up)(struct LANE(lanes) * w, const struct blasd_systems *shape, void *work) {
    int64_t n = shape->n;
    w->n = n;
    w->row = shape->a_row;
    w->column = shape->a_column;
    w->matrix = work;
    w->lu = w->matrix + n * n;
    w->ld = n | 1;
    w->inverse = w->lu + n * w->ld;
    w->b = w->inverse + n;
    w->x = w->b + n;
    w->r = w->x + n;
    w->t = w->r + n;
    w->y = w->t + n;
    w->order = (ivec *)(w->y + n);
    w->back = w->order + n;
    w->pivots = (int32_t *)(void *)(w->back + n);
}

static void LANE(finish)(const struct blasd_systems *shape, struct blasd_system *system,
                         int64_t zero_pivot, REAL rcond) {
    REAL *x = system->x;
    system->info = zero_pivot;
    system->singular = true;
    system->unsymmetric = system->doubtful = false;
    system->settled = shape->refinement != BLASD_REFINE_NONE;
    system->method = zero_pivot == 0 ? BLASD_SOLVED_LU : BLASD_SOLVED_NOT;
    system->rcond = zero_pivot != 0 ? 0 : rcond < 1 ? (double)rcond : 1;
    system->steps = 0;
    system->error = zero_pivot == 0 ? 0 : (double)NAN;
    for (int64_t i = 0; zero_pivot != 0 && i < shape->n * shape->columns; i++) x[i] = (REAL)NAN;
}

static void LANE(run)(const struct blasd_systems *shape, struct blasd_system *systems, int count,
                      void *work) {
    struct LANE(lanes) lanes, *w = &lanes;
    const REAL *a[LANES], *b[LANES];
    int64_t n = shape->n, done = 0;
    ivec left, steps;
    vec rcond, error;
    LANE(set_up)(w, shape, work);
    /* lanes that are not needed repeat the first system */
    for (int l = 0; l < LANES; l++) a[l] = systems[l < count ? l : 0].a;
    for (int l = 0; l < LANES; l++) b[l] = systems[l < count ? l : 0].b;
    LANE(gather)(a, n * n, w->matrix);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            w->lu[i * w->ld + j] = w->matrix[i * w->row + j * w->column];
    left = LANE(measure)(w);
    LANE(factor)(w);
    LANE(take_order)(w);
    rcond = LANE(rcond)(w);
    w->contraction = LANE(contraction)(w, rcond);
    /* whose matrix may be singular for all that is known (blasd_solve_is_open) */
    left |= (~(ivec)(rcond >= LANE(splat)(2 * UNIT * (REAL)n)) |
             ~(ivec)(w->contraction * (REAL)(n < 4 ? 4 : n) < LANE(splat)(2))) &
            (ivec)(w->zero_pivot == (ivec){0});
    for (int l = 0; l < count; l++)
        LANE(finish)(shape, &systems[l], left[l] ? 0 : (int64_t)w->zero_pivot[l], rcond[l]);
    for (int64_t c = 0; c < shape->columns && blasd_wanted_after(&done, 40 * n * n); c++) {
        for (int64_t i = 0; i < n; i++)
            for (int l = 0; l < LANES; l++)
                ((REAL *)(w->b + i))[l] = b[l][i * shape->b_row + c * shape->b_column];
        left |= LANE(solve_column)(w, shape->refinement != BLASD_REFINE_NONE, &error, &steps);
        for (int l = 0; l < count; l++) {
            REAL *x = systems[l].x;
            if (systems[l].info != 0) continue;
            for (int64_t i = 0; i < n; i++) x[i * shape->columns + c] = w->x[i][l];
            if (!((double)error[l] <= systems[l].error)) systems[l].error = (double)error[l];
            if (steps[l] > systems[l].steps) systems[l].steps = steps[l];
        }
    }
    for (int l = 0; l < count; l++) systems[l].leave_to_all = left[l] && systems[l].info == 0;
}

#undef vec
#undef ivec
#undef LANES
#undef INLINE
