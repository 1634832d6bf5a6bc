//! Every kernel against a scalar model that shares no code with it.

mod blocks;
mod copies;

use comm_core::{DType, ErrorKind, ReduceOp};
use half::{bf16, f16};
use proptest::prelude::*;

use super::narrow_float::{f16_to_f32, f32_to_bf16, f32_to_f16};
use super::{Isa, Reducer};

/// The instruction sets that this processor can run.
fn instruction_sets() -> Vec<Isa> {
    let mut sets = vec![Isa::Baseline];
    if Isa::detect() != Isa::Baseline {
        sets.push(Isa::detect());
    }
    sets
}

fn reducible() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|dtype| dtype.is_reducible())
}

/// A small generator: results repeat without a seed to keep.
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> u64 {
        // SplitMix64 (Steele, Lea, Flood 2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// The values at which arithmetic goes wrong, and some in between, as little-endian bytes.
fn interesting(dtype: DType) -> Vec<Vec<u8>> {
    macro_rules! bytes {
        ($($value:expr),* $(,)?) => { vec![$($value.to_ne_bytes().to_vec()),*] };
    }
    macro_rules! integers {
        ($int:ty) => {
            bytes![
                0 as $int,
                1 as $int,
                <$int>::MAX,
                <$int>::MIN,
                7 as $int,
                !2 as $int
            ]
        };
    }
    macro_rules! floats {
        ($float:ty, $from:expr) => {{
            let from = $from;
            let mut values = bytes![
                from(0.0),
                from(-0.0),
                from(1.0),
                from(-1.0),
                from(3.140625),
                from(-7.5),
                <$float>::INFINITY,
                <$float>::NEG_INFINITY,
                <$float>::NAN,
                <$float>::MAX,
                <$float>::MIN,
                <$float>::MIN_POSITIVE,
                <$float>::EPSILON,
            ];
            // The smallest subnormal.
            values.push(<$float>::from_bits(1).to_ne_bytes().to_vec());
            values
        }};
    }
    match dtype {
        DType::I8 => integers!(i8),
        DType::U8 => integers!(u8),
        DType::I32 => integers!(i32),
        DType::U32 => integers!(u32),
        DType::I64 => integers!(i64),
        DType::U64 => integers!(u64),
        DType::F16 => floats!(f16, f16::from_f32),
        DType::Bf16 => floats!(bf16, bf16::from_f32),
        DType::F32 => floats!(f32, |value: f32| value),
        DType::F64 => floats!(f64, |value: f64| value),
        _ => unreachable!("not reducible"),
    }
}

/// `(sources[0] op sources[1]) op ...` of single elements, then divided by `ranks`.
///
/// `stepwise` rounds f16 and bf16 after each step instead of once.
fn model(dtype: DType, op: ReduceOp, sources: &[&[u8]], ranks: u32, stepwise: bool) -> Vec<u8> {
    macro_rules! integer {
        ($int:ty) => {{
            let mut values = sources
                .iter()
                .map(|bytes| <$int>::from_ne_bytes((*bytes).try_into().unwrap()));
            let first = values.next().unwrap();
            let total = values.fold(first, |a, b| match op {
                ReduceOp::Sum | ReduceOp::Avg => a.wrapping_add(b),
                ReduceOp::Prod => a.wrapping_mul(b),
                ReduceOp::Min => {
                    if b < a {
                        b
                    } else {
                        a
                    }
                }
                _ => {
                    if b > a {
                        b
                    } else {
                        a
                    }
                }
            });
            ((i128::from(total) / i128::from(ranks)) as $int)
                .to_ne_bytes()
                .to_vec()
        }};
    }
    macro_rules! float {
        ($wide:ty, $widen:expr, $round:expr) => {{
            let round = |value: $wide| -> $wide {
                if stepwise {
                    $widen(&$round(value))
                } else {
                    value
                }
            };
            let mut values = sources.iter().map(|bytes| $widen(bytes));
            let first: $wide = values.next().unwrap();
            let total = values.fold(first, |a, b| {
                let below = |a: $wide, b: $wide| {
                    a < b || (a == b && a.is_sign_negative() && !b.is_sign_negative())
                };
                round(match op {
                    ReduceOp::Sum | ReduceOp::Avg => a + b,
                    ReduceOp::Prod => a * b,
                    _ if a.is_nan() || b.is_nan() => <$wide>::NAN,
                    ReduceOp::Min => {
                        if below(b, a) {
                            b
                        } else {
                            a
                        }
                    }
                    _ => {
                        if below(a, b) {
                            b
                        } else {
                            a
                        }
                    }
                })
            });
            $round(total / ranks as $wide).to_vec()
        }};
    }
    match dtype {
        DType::I8 => integer!(i8),
        DType::U8 => integer!(u8),
        DType::I32 => integer!(i32),
        DType::U32 => integer!(u32),
        DType::I64 => integer!(i64),
        DType::U64 => integer!(u64),
        DType::F32 => float!(
            f32,
            |bytes: &[u8]| f32::from_ne_bytes(bytes.try_into().unwrap()),
            |value: f32| value.to_ne_bytes()
        ),
        DType::F64 => float!(
            f64,
            |bytes: &[u8]| f64::from_ne_bytes(bytes.try_into().unwrap()),
            |value: f64| value.to_ne_bytes()
        ),
        DType::F16 => float!(
            f32,
            |bytes: &[u8]| f16::from_ne_bytes(bytes.try_into().unwrap()).to_f32(),
            |value: f32| f16::from_f32(value).to_ne_bytes()
        ),
        DType::Bf16 => float!(
            f32,
            |bytes: &[u8]| bf16::from_ne_bytes(bytes.try_into().unwrap()).to_f32(),
            |value: f32| bf16::from_f32(value).to_ne_bytes()
        ),
        _ => unreachable!("not reducible"),
    }
}

fn is_nan(dtype: DType, bytes: &[u8]) -> bool {
    match dtype {
        DType::F16 => f16::from_ne_bytes(bytes.try_into().unwrap()).is_nan(),
        DType::Bf16 => bf16::from_ne_bytes(bytes.try_into().unwrap()).is_nan(),
        DType::F32 => f32::from_ne_bytes(bytes.try_into().unwrap()).is_nan(),
        DType::F64 => f64::from_ne_bytes(bytes.try_into().unwrap()).is_nan(),
        _ => false,
    }
}

#[track_caller]
fn assert_same(dtype: DType, actual: &[u8], expected: &[u8], what: &str) {
    let size = dtype.size_bytes();
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (index, (a, e)) in actual.chunks(size).zip(expected.chunks(size)).enumerate() {
        let same = a == e || (is_nan(dtype, a) && is_nan(dtype, e));
        assert!(
            same,
            "{what}: element {index} is {a:02x?} instead of {e:02x?}"
        );
    }
}

/// A buffer whose payload starts `shift` bytes after an aligned address, between guard bytes.
struct Shifted {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Shifted {
    const GUARD: u8 = 0xa5;

    fn new(payload: &[u8], shift: usize) -> Self {
        let mut bytes = vec![Self::GUARD; payload.len() + 256];
        let start = bytes.as_ptr().align_offset(64) + 64 + shift;
        bytes[start..start + payload.len()].copy_from_slice(payload);
        Self {
            bytes,
            start,
            len: payload.len(),
        }
    }

    fn as_ptr(&self) -> *const u8 {
        self.bytes[self.start..].as_ptr()
    }

    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes[self.start..].as_mut_ptr()
    }

    /// The payload, after a check that nothing around it was written.
    #[track_caller]
    fn payload(&self) -> &[u8] {
        let (before, rest) = self.bytes.split_at(self.start);
        let (payload, after) = rest.split_at(self.len);
        assert!(
            before.iter().chain(after).all(|byte| *byte == Self::GUARD),
            "guard overwritten"
        );
        payload
    }
}

/// Runs every kernel of one combination on the same operands and compares it with the model.
fn check(dtype: DType, op: ReduceOp, a: &[u8], b: &[u8], c: &[u8], shifts: [usize; 3], ranks: u32) {
    let size = dtype.size_bytes();
    let count = a.len() / size;
    let expect = |sources: &[&[u8]], ranks, stepwise| -> Vec<u8> {
        (0..count)
            .flat_map(|index| {
                let at = index * size..(index + 1) * size;
                let elements: Vec<_> = sources.iter().map(|source| &source[at.clone()]).collect();
                model(dtype, op, &elements, ranks, stepwise)
            })
            .collect()
    };
    let two = expect(&[a, b], 1, true);
    let twice = expect(&[a, a], 1, true);
    let three = expect(&[a, b, c], 1, false);
    let averaged = expect(&[a, b, c], ranks, false);
    let scaled = expect(&[a], ranks, true);
    for isa in instruction_sets() {
        let reducer = Reducer::for_isa(dtype, op, isa).unwrap();
        let what = |kernel: &str| format!("{reducer:?} {kernel} of {count}, shifts {shifts:?}");
        let (left, right) = (Shifted::new(a, shifts[0]), Shifted::new(b, shifts[1]));
        let third = Shifted::new(c, shifts[2]);
        let fresh = || Shifted::new(&vec![0; a.len()], shifts[2]);

        let mut out = fresh();
        // SAFETY: all buffers hold `count` elements and are different.
        unsafe { reducer.reduce(out.as_mut_ptr(), left.as_ptr(), right.as_ptr(), count) };
        assert_same(dtype, out.payload(), &two, &what("reduce"));

        let mut out = fresh();
        // SAFETY: as above.
        unsafe { reducer.reduce_streaming(out.as_mut_ptr(), left.as_ptr(), right.as_ptr(), count) };
        assert_same(dtype, out.payload(), &two, &what("reduce_streaming"));

        let mut in_place = Shifted::new(a, shifts[0]);
        let target = in_place.as_mut_ptr();
        // SAFETY: as above; the destination is the first source.
        unsafe { reducer.reduce(target, target, right.as_ptr(), count) };
        assert_same(dtype, in_place.payload(), &two, &what("reduce into a"));

        let mut in_place = Shifted::new(b, shifts[1]);
        let target = in_place.as_mut_ptr();
        // SAFETY: as above; the destination is the second source.
        unsafe { reducer.reduce(target, left.as_ptr(), target, count) };
        assert_same(dtype, in_place.payload(), &two, &what("reduce into b"));

        let mut in_place = Shifted::new(a, shifts[0]);
        let target = in_place.as_mut_ptr();
        // SAFETY: as above; the destination is both sources.
        unsafe { reducer.reduce(target, target, target, count) };
        assert_same(
            dtype,
            in_place.payload(),
            &twice,
            &what("reduce with itself"),
        );

        let (mut in_place, mut out) = (Shifted::new(a, shifts[0]), fresh());
        let target = in_place.as_mut_ptr();
        // SAFETY: as above; the first destination is the first source.
        unsafe { reducer.reduce2(target, out.as_mut_ptr(), target, right.as_ptr(), count) };
        assert_same(dtype, in_place.payload(), &two, &what("reduce2, first"));
        assert_same(dtype, out.payload(), &two, &what("reduce2, second"));

        for swapped in [false, true] {
            let (mut first, mut second) = (Shifted::new(a, shifts[0]), Shifted::new(b, shifts[1]));
            let (one, other) = (first.as_mut_ptr(), second.as_mut_ptr());
            let (dst0, dst1) = if swapped { (other, one) } else { (one, other) };
            // SAFETY: as above; each destination is one of the sources.
            unsafe { reducer.reduce2(dst0, dst1, one, other, count) };
            assert_same(
                dtype,
                first.payload(),
                &two,
                &what("reduce2, both in place"),
            );
            assert_same(
                dtype,
                second.payload(),
                &two,
                &what("reduce2, both in place"),
            );
        }

        let sources = [left.as_ptr(), right.as_ptr(), third.as_ptr()];
        let mut out = fresh();
        // SAFETY: as above.
        unsafe { reducer.reduce_many(out.as_mut_ptr(), &sources, count) };
        assert_same(dtype, out.payload(), &three, &what("reduce_many"));

        let mut in_place = Shifted::new(b, shifts[1]);
        let target = in_place.as_mut_ptr();
        let sources = [left.as_ptr(), target.cast_const(), third.as_ptr()];
        // SAFETY: as above; the destination is the second source.
        unsafe { reducer.reduce_many(target, &sources, count) };
        assert_same(
            dtype,
            in_place.payload(),
            &three,
            &what("reduce_many in place"),
        );

        let sources = [left.as_ptr(), right.as_ptr(), third.as_ptr()];
        let mut out = fresh();
        // SAFETY: as above.
        unsafe { reducer.reduce_many_scaled(out.as_mut_ptr(), &sources, count, ranks) };
        assert_same(dtype, out.payload(), &averaged, &what("reduce_many_scaled"));

        let mut out = Shifted::new(a, shifts[0]);
        // SAFETY: the buffer holds `count` elements.
        unsafe { reducer.scale(out.as_mut_ptr(), count, ranks) };
        assert_same(dtype, out.payload(), &scaled, &what("scale"));
    }
}

#[test]
fn all_pairs_of_special_values_agree_with_the_model() {
    for dtype in reducible() {
        let values = interesting(dtype);
        // Three operands that go through all pairs, and a third that differs from both.
        let (mut a, mut b, mut c) = (vec![], vec![], vec![]);
        for (i, first) in values.iter().enumerate() {
            for (j, second) in values.iter().enumerate() {
                a.extend(first);
                b.extend(second);
                c.extend(&values[(i + 2 * j + 1) % values.len()]);
            }
        }
        for op in ReduceOp::ALL {
            for ranks in [1, 3, 8] {
                check(dtype, op, &a, &b, &c, [0, 0, 0], ranks);
            }
        }
    }
}

#[test]
fn every_count_around_the_block_size_and_every_alignment_work() {
    let mut bits = Bits(1);
    for dtype in reducible() {
        let size = dtype.size_bytes();
        for count in (0..70).chain([127, 128, 129, 1000]) {
            let [a, b, c] = [(); 3].map(|()| bits.bytes(count * size));
            let shifts = [(); 3].map(|()| bits.next() as usize % 64);
            let op = ReduceOp::ALL[count % ReduceOp::ALL.len()];
            check(dtype, op, &a, &b, &c, shifts, 1 + count as u32);
        }
    }
}

#[test]
fn averages_of_many_ranks_truncate_towards_zero() {
    for (value, ranks, quotient) in [
        (-7_i8, 2, -3_i8),
        (-1, 200, 0),
        (127, 1000, 0),
        (-128, 3, -42),
    ] {
        let mut buffer = value;
        // SAFETY: one element.
        unsafe {
            Reducer::new(DType::I8, ReduceOp::Avg).unwrap().scale(
                (&raw mut buffer).cast(),
                1,
                ranks,
            );
        }
        assert_eq!(buffer, quotient);
    }
    let mut buffer = [i64::MIN, i64::MAX];
    // SAFETY: two elements.
    unsafe {
        Reducer::new(DType::I64, ReduceOp::Avg).unwrap().scale(
            buffer.as_mut_ptr().cast(),
            2,
            u32::MAX,
        );
    }
    assert_eq!(
        buffer,
        [
            i64::MIN / i64::from(u32::MAX),
            i64::MAX / i64::from(u32::MAX)
        ]
    );
}

#[test]
fn many_sources_are_rounded_once() {
    // 2048 + 1 is not an f16: stepwise rounding would lose every one of the ones.
    let [big, one] = [f16::from_f32(2048.0), f16::ONE].map(|value| [value; 40]);
    let sources = [big.as_ptr(), one.as_ptr(), one.as_ptr()].map(<*const f16>::cast);
    for isa in instruction_sets() {
        let mut out = [f16::ZERO; 40];
        let reducer = Reducer::for_isa(DType::F16, ReduceOp::Sum, isa).unwrap();
        // SAFETY: all buffers hold 40 elements.
        unsafe { reducer.reduce_many(out.as_mut_ptr().cast(), &sources, 40) };
        assert_eq!(out, [f16::from_f32(2050.0); 40]);
    }
}

#[test]
fn no_sources_leave_the_destination_alone() {
    let mut out = [5_u8; 3];
    let reducer = Reducer::new(DType::U8, ReduceOp::Sum).unwrap();
    // SAFETY: the buffer holds 3 elements.
    unsafe { reducer.reduce_many(out.as_mut_ptr(), &[], 3) };
    assert_eq!(out, [5; 3]);
}

#[test]
fn types_that_cannot_be_reduced_are_refused() {
    for dtype in DType::ALL {
        let reducer = Reducer::new(dtype, ReduceOp::Sum);
        assert_eq!(reducer.is_ok(), dtype.is_reducible(), "{dtype}");
        if let Err(error) = reducer {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
    }
}

#[test]
fn every_16_bit_float_widens_like_the_reference() {
    for bits in 0..=u16::MAX {
        let expected = f16::from_bits(bits).to_f32();
        let actual = f16_to_f32(bits);
        assert_eq!(actual.to_bits(), expected.to_bits(), "{bits:04x}");
        let quiet = if actual.is_nan() { 0x0200 } else { 0 };
        assert_eq!(f32_to_f16(actual), bits | quiet, "{bits:04x}");
    }
}

#[test]
fn narrowing_rounds_to_nearest_even_like_the_reference() {
    let mut bits = Bits(2);
    let bf16_ties = (0..=u16::MAX).map(|upper| u32::from(upper) << 16 | 0x8000);
    let f16_ties = (0..1 << 19).map(|upper| upper << 13 | 0x1000);
    let around_f16_ties = f16_ties.flat_map(|tie| [tie - 1, tie, tie + 1]);
    let random = (0..200_000).map(|_| bits.next() as u32);
    for value in bf16_ties
        .chain(around_f16_ties)
        .chain(random)
        .map(f32::from_bits)
    {
        assert_eq!(
            f32_to_bf16(value),
            bf16::from_f32(value).to_bits(),
            "{value:e} to bf16"
        );
        let expected = f16::from_f32_const(value).to_bits();
        assert_eq!(f32_to_f16(value), expected, "{value:e} to f16");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bits_at_any_alignment_agree_with_the_model(
        dtype in prop::sample::select(reducible().collect::<Vec<_>>()),
        op in prop::sample::select(ReduceOp::ALL.to_vec()),
        count in 0_usize..200,
        shifts in prop::array::uniform3(0_usize..64),
        ranks in 1_u32..70_000,
        seed in any::<u64>(),
    ) {
        let mut bits = Bits(seed);
        let [a, b, c] = [(); 3].map(|()| bits.bytes(count * dtype.size_bytes()));
        check(dtype, op, &a, &b, &c, shifts, ranks);
    }
}
