/* The floor under the compiled engine: the paper's l2 run, one edge a round, as plain C that the compiler vectorises.
 *
 *     gcc -Ofast -march=native -shared -fPIC floor.c -o floor.so -lm        (benchmarks/baselines.py does this)
 *
 * The same arithmetic as one round of Algorithm 1: Threefry-2x32-13, Box-Muller in float32 by polynomials, the margin
 * of one record at each of two nodes, both running sums, both messages, their mean. State is float64. Nothing else:
 * no dispatch, no checks, no clipping, one loss, records and edges drawn beforehand.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef BLOCK
#define BLOCK 1024 /* benchmarks/baselines.py passes the kernel's own */
#endif
#define ROTATE(x, k) (((x) << (k)) | ((x) >> (32 - (k))))
#define ROUND(k) x0 += x1; x1 = ROTATE(x1, k) ^ x0

static inline void threefry(uint32_t k0, uint32_t k1, uint32_t c, uint32_t *w0, uint32_t *w1) {
    const uint32_t k2 = k0 ^ k1 ^ 0x1BD11BDAu;
    uint32_t x0 = c + k0, x1 = k1;
    ROUND(13); ROUND(15); ROUND(26); ROUND(6);
    x0 += k1; x1 += k2 + 1;
    ROUND(17); ROUND(29); ROUND(16); ROUND(24);
    x0 += k2; x1 += k0 + 2;
    ROUND(13); ROUND(15); ROUND(26); ROUND(6);
    x0 += k0; x1 += k1 + 3;
    ROUND(17);
    *w0 = x0;
    *w1 = x1;
}

static inline float radius(uint32_t w) {
    float u = (float)w + 0.5f, mantissa;
    int32_t bits, exponent;
    memcpy(&bits, &u, 4);
    exponent = (bits - 0x3f3504f3) >> 23;
    bits -= exponent << 23;
    memcpy(&mantissa, &bits, 4);
    const int near = w >= 0xB504F334u;
    const float f = near ? -((float)~w + 0.5f) * 0x1p-32f : mantissa - 1.0f;
    const float octaves = near ? 0.0f : (float)(exponent - 32);
    const float p = ((((((0.202137783f * f - 0.324451685f) * f + 0.345016658f) * f - 0.39800331f) * f + 0.499398172f) * f
                      - 0.666701198f) * f + 1.00000727f) * f - 1.99999988f;
    return sqrtf(p * f - 1.38629436f * octaves);
}

static inline void direction(uint32_t w, float *x, float *y) {
    const uint32_t quarter = (w + (1u << 29)) >> 30;
    const float angle = (float)(int32_t)(w - (quarter << 30)) * 1.46291808e-9f, square = angle * angle;
    const float s = (((-0.000195018220f * square + 0.00833201645f) * square - 0.166666502f) * square + 1.0f) * angle;
    const float c = ((-0.00135794041f * square + 0.0416544196f) * square - 0.499998424f) * square + 1.0f;
    const float a = quarter & 1 ? s : c, b = quarter & 1 ? c : s;
    *x = (quarter + 1) & 2 ? -a : a;
    *y = quarter & 2 ? -b : b;
}

static void normals(uint32_t k0, uint32_t k1, int first, int count, float *restrict cosines, float *restrict sines) {
    uint32_t w0[BLOCK], w1[BLOCK];
    for (int j = 0; j < count; j++) threefry(k0, k1, first + j, &w0[j], &w1[j]);
    for (int j = 0; j < count; j++) {
        float x, y, r = radius(w0[j]);
        direction(w1[j], &x, &y);
        cosines[j] = r * x;
        sines[j] = r * y;
    }
}

static void edge(double *restrict z0, double *restrict z1, double *restrict t0, double *restrict t1,
                 const float *restrict n0, const float *restrict n1, double loud, double slept0, double slept1, int count) {
    for (int j = 0; j < count; j++) {
        t0[j] -= slept0 * z0[j];
        t1[j] -= slept1 * z1[j];
        z0[j] = z1[j] = 0.5 * (z0[j] + z1[j] + loud * (n0[j] + n1[j]));
    }
}

static void edge_dense(double *restrict z0, double *restrict z1, double *restrict t0, double *restrict t1,
                       const float *restrict n0, const float *restrict n1, const float *restrict c0,
                       const float *restrict c1, double pull0, double pull1, double loud, double slept0, double slept1,
                       int count) {
    for (int j = 0; j < count; j++) {
        t0[j] -= slept0 * z0[j];
        t1[j] -= slept1 * z1[j];
        z0[j] = z1[j] = 0.5 * (z0[j] + z1[j] + loud * (n0[j] + n1[j]) + pull0 * c0[j] + pull1 * c1[j]);
    }
}

/* count normals, for the time of one */
void many_normals(long count, float *out) {
    for (long done = 0; done < count; done += 2 * BLOCK) normals((uint32_t)done, 7, 0, BLOCK, out, out + BLOCK);
}

/* count normals, each added to something */
void add_normals(long count, float *restrict out, double *restrict total) {
    for (long done = 0; done < count; done += 2 * BLOCK) {
        normals((uint32_t)done, 7, 0, BLOCK, out, out + BLOCK);
        for (int j = 0; j < 2 * BLOCK; j++) total[j] += 0.5 * out[j];
    }
}

/* Rounds 1 ... T of the hinge loss with h = mu/2 |x|^2, a_t = t, gamma constant. indptr NULL: X is dense, (N, m). */
void rounds(long T, long m, const int32_t *pairs, const int64_t *rows, const float *X, const int32_t *indices,
            const int32_t *indptr, const double *y, double mu, double gamma, double iota, double sigma,
            const double *P, double *z, double *total, int64_t *since) {
    float noise[2][2][BLOCK];
    const long half = (m + 1) / 2;
    double A = 0.0;
    for (long t = 1; t <= T; t++) {
        double *zs[2], *ts[2], pull[2], slept[2];
        const float *c[2];
        uint32_t key[2][2];
        A += t;
        for (int p = 0; p < 2; p++) {
            const long i = pairs[2 * (t - 1) + p], row = rows[2 * (t - 1) + p];
            double u = 0.0;
            zs[p] = z + i * m;
            ts[p] = total + i * m;
            c[p] = X + row * m;
            if (indptr)
                for (int32_t e = indptr[row]; e < indptr[row + 1]; e++) u += X[e] * zs[p][indices[e]];
            else
                for (long j = 0; j < m; j++) u += c[p][j] * zs[p][j];
            u /= -(iota * A * mu + gamma);
            pull[p] = y[row] * u < 1.0 ? -y[row] * t : 0.0;
            slept[p] = P[t] - P[since[i] - 1];
            since[i] = t + 1;
            threefry((uint32_t)i, 11, (uint32_t)t, &key[p][0], &key[p][1]);
        }
        for (long first = 0; first < half; first += BLOCK) {
            const int count = half - first < BLOCK ? half - first : BLOCK;
            for (int p = 0; p < 2; p++) normals(key[p][0], key[p][1], first, count, noise[p][0], noise[p][1]);
            for (int side = 0; side < 2; side++) {
                const long at = first + side * half;
                const int here = m - at < count ? m - at : count;
                if (indptr)
                    edge(zs[0] + at, zs[1] + at, ts[0] + at, ts[1] + at, noise[0][side], noise[1][side], sigma * t,
                         slept[0], slept[1], here);
                else
                    edge_dense(zs[0] + at, zs[1] + at, ts[0] + at, ts[1] + at, noise[0][side], noise[1][side], c[0] + at,
                               c[1] + at, pull[0], pull[1], sigma * t, slept[0], slept[1], here);
            }
        }
        if (indptr)
            for (int p = 0; p < 2; p++) {
                const long row = rows[2 * (t - 1) + p];
                for (int32_t e = indptr[row]; e < indptr[row + 1]; e++) {
                    zs[0][indices[e]] += 0.5 * pull[p] * X[e];
                    zs[1][indices[e]] += 0.5 * pull[p] * X[e];
                }
            }
    }
}

/* One round of batches: margins of the rows and the sum of their hinge subgradients, each row read once; rows NULL: all N. */
void batch(long N, long m, const float *X, const int64_t *rows, const double *y, const double *restrict x,
           double *restrict g) {
    memset(g, 0, m * sizeof(double));
    for (long e = 0; e < N; e++) {
        const long row = rows ? rows[e] : e;
        const float *restrict c = X + row * m;
        double u = 0.0;
        for (long j = 0; j < m; j++) u += c[j] * x[j];
        if (y[row] * u < 1.0)
            for (long j = 0; j < m; j++) g[j] -= y[row] * c[j];
    }
}

/* The same of K outputs, x and g (K, m): K margins, softmax slopes, K sums. */
void several(long N, long m, long K, const float *X, const int64_t *rows, const double *y, const double *restrict x,
             double *restrict g) {
    double s[64];
    memset(g, 0, K * m * sizeof(double));
    for (long e = 0; e < N; e++) {
        const long row = rows ? rows[e] : e;
        const float *restrict c = X + row * m;
        double total = 0.0;
        for (long k = 0; k < K; k++) {
            double u = 0.0;
            for (long j = 0; j < m; j++) u += c[j] * x[k * m + j];
            total += s[k] = exp(u);
        }
        for (long k = 0; k < K; k++) {
            const double slope = s[k] / total - (k == (long)y[row]);
            for (long j = 0; j < m; j++) g[k * m + j] += slope * c[j];
        }
    }
}

/* The same of CSR rows in float64, as two products: u = Xx, g = X'u; rows NULL: all N. */
void products(long N, long m, const double *X, const int64_t *rows, const int32_t *indices, const int32_t *indptr,
              const double *restrict x, double *restrict u, double *restrict g) {
    memset(g, 0, m * sizeof(double));
    for (long at = 0; at < N; at++) {
        const long row = rows ? rows[at] : at;
        double sum = 0.0;
        for (int32_t e = indptr[row]; e < indptr[row + 1]; e++) sum += X[e] * x[indices[e]];
        u[at] = sum;
    }
    for (long at = 0; at < N; at++) {
        const long row = rows ? rows[at] : at;
        for (int32_t e = indptr[row]; e < indptr[row + 1]; e++) g[indices[e]] += u[at] * X[e];
    }
}
