/*
 * kernels.cl -- the one source of all kernels: compiled by the OpenCL driver at run time, by clang
 * to PTX for CUDA at build time, and by the C compiler into the tests' emulated driver.
 * Memories come first, then 64-bit numbers. Plain C that all three understand; one dimension.
 */
#ifdef __NVPTX__
#define AT                                                                           \
    ((ulong)(uint)__nvvm_read_ptx_sreg_ctaid_x() * (uint)__nvvm_read_ptx_sreg_ntid_x() + \
     (uint)__nvvm_read_ptx_sreg_tid_x())
#else
#define AT ((ulong)get_global_id(0))
#endif

#define LANE 16 /* bytes one work item moves */

/* Move i of `count` is triples[3i + 2] bytes, `most` at most, from offset triples[3i] of `from` to
 * offset triples[3i + 1] of `to`; the list itself lies at `list` in `moves`, 8-byte aligned. */
__kernel void fb_gather(__global uchar *to, __global const uchar *from,
                        __global const uchar *moves, ulong list, ulong count, ulong most)
{
    __global const ulong *triples = (__global const ulong *)(moves + list);
    ulong lanes = (most + LANE - 1) / LANE, move = AT / lanes, begin = AT % lanes * LANE;
    ulong bytes = move < count ? triples[3 * move + 2] : 0;
    ulong left = begin < bytes ? bytes - begin : 0;
    __global const uchar *in = from;
    __global uchar *out = to;

    if (!left)
        return;
    in += triples[3 * move] + begin;
    out += triples[3 * move + 1] + begin;
    if (left >= LANE && (((ulong)in | (ulong)out) & 7) == 0) {
        ((__global ulong *)out)[0] = ((__global const ulong *)in)[0];
        ((__global ulong *)out)[1] = ((__global const ulong *)in)[1];
        return;
    }
    for (ulong i = 0; i < left && i < LANE; i++)
        out[i] = in[i];
}

/* Round to nearest, ties to even; what is too large becomes infinite; a NaN stays one. */
ushort half_of(uint bits);
ushort half_of(uint bits)
{
    uint sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff, shift, part, low;

    if (rest >= 0x7f800000) /* infinite, or a NaN with its upper bits, quiet */
        return (ushort)(sign | 0x7c00 | (rest > 0x7f800000 ? 0x200 | (rest >> 13 & 0x3ff) : 0));
    if (rest >= 0x477ff000) /* rounds up to 2^16 */
        return (ushort)(sign | 0x7c00);
    if (rest < 0x33000000) /* rounds to zero */
        return (ushort)sign;
    if (rest >= 0x38800000) { /* normal */
        rest -= 0x38000000;
        return (ushort)(sign | (rest + 0xfff + (rest >> 13 & 1)) >> 13);
    }
    shift = 126 - (rest >> 23); /* subnormal: 14 to 24 */
    part = (rest & 0x7fffff) | 0x800000;
    low = part >> shift;
    part &= ((uint)1 << shift) - 1;
    if (part > (uint)1 << (shift - 1) || (part == (uint)1 << (shift - 1) && (low & 1)))
        low++;
    return (ushort)(sign | low);
}

__kernel void fb_cast_f16(__global ushort *to, __global const uint *from, ulong count)
{
    if (AT < count)
        to[AT] = half_of(from[AT]);
}

__kernel void fb_cast_bf16(__global ushort *to, __global const uint *from, ulong count)
{
    uint bits;

    if (AT >= count)
        return;
    bits = from[AT];
    if ((bits & 0x7fffffff) > 0x7f800000)
        to[AT] = (ushort)(bits >> 16 | 0x40);
    else
        to[AT] = (ushort)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* values[i] = (values[i] - mean[c]) * scale[c], c the channel of i: i / inner % channels. */
__kernel void fb_normalise(__global float *values, __global const float *mean,
                           __global const float *scale, ulong count, ulong inner, ulong channels)
{
    ulong channel;

    if (AT >= count)
        return;
    channel = AT / inner % channels;
    values[AT] = (values[AT] - mean[channel]) * scale[channel];
}
