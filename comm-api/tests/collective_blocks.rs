//! Contracts of the collectives that deal in blocks or end at a root.

mod support;

use comm_api::{Communicator, DType, Error, ErrorKind, ReduceOp, Tensor, TensorMut};
use support::{on_every_transport, with_ranks};

/// Whether nothing was sent: the ranks can still work together.
fn is_unharmed(comm: &Communicator) -> bool {
    let mut buffer = [1_i32; 3];
    comm.all_reduce(&mut buffer, ReduceOp::Sum).is_ok() && buffer == [comm.world_size() as i32; 3]
}

fn assert_refused(result: Result<(), Error>, words: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

fn a_buffer_that_does_not_divide_into_blocks_is_refused() {
    with_ranks(3, |comm| {
        let words = "an equally long block for each rank";
        assert_refused(comm.all_gather(&mut [0_u8; 4]), words);
        let refused = comm.reduce_scatter(&mut [0_u8; 5], ReduceOp::Sum).map(drop);
        assert_refused(refused, words);
        assert_refused(comm.all_to_all(&mut [0_u8; 7]), words);
        assert_refused(comm.all_to_all_into(&[0_u8; 7], &mut [0; 7]), words);
        // Only where the buffer holds all blocks.
        if comm.rank() == 1 {
            assert_refused(comm.gather(&mut [0_u8; 4], 1), words);
            assert_refused(comm.scatter(&mut [0_u8; 4], 1).map(drop), words);
        }
        assert!(is_unharmed(comm));
    })
    .unwrap();
}

fn lengths_that_do_not_belong_together_are_refused() {
    with_ranks(2, |comm| {
        let of_input = "the output must hold a block of the input's length for each rank";
        assert_refused(comm.all_gather_into(&[0_u8; 2], &mut [0; 5]), of_input);
        let of_output = "the input must hold a block of the output's length for each rank";
        let refused = comm.reduce_scatter_into(&[0_u8; 3], &mut [0; 1], ReduceOp::Sum);
        assert_refused(refused, of_output);
        let equal = "input and output must be equally long";
        assert_refused(comm.all_to_all_into(&[0_u8; 2], &mut [0; 4]), equal);
        if comm.rank() == 0 {
            let refused = comm.reduce_into(&[0_u8; 2], Some(&mut [0; 3]), ReduceOp::Sum, 0);
            assert_refused(refused, equal);
            assert_refused(comm.gather_into(&[0_u8; 2], Some(&mut [0; 3]), 0), of_input);
            assert_refused(
                comm.scatter_into(Some(&[0_u8; 3]), &mut [0; 1], 0),
                of_output,
            );
        }
        assert!(is_unharmed(comm));
    })
    .unwrap();
}

fn a_buffer_that_is_missing_or_not_used_is_refused() {
    with_ranks(2, |comm| {
        if comm.rank() == 0 {
            let refused = comm.reduce_into(&[0_u8; 2], None, ReduceOp::Sum, 0);
            assert_refused(refused, "the root must pass an output");
            let refused = comm.gather_into(&[0_u8; 2], None, 0);
            assert_refused(refused, "the root must pass an output");
            let refused = comm.scatter_into(None, &mut [0_u8; 2], 0);
            assert_refused(refused, "the root must pass an input");
        } else {
            let refused = comm.reduce_into(&[0_u8; 2], Some(&mut [0; 2]), ReduceOp::Sum, 0);
            assert_refused(refused, "only the root passes an output");
            let refused = comm.gather_into(&[0_u8; 2], Some(&mut [0; 4]), 0);
            assert_refused(refused, "only the root passes an output");
            let refused = comm.scatter_into(Some(&[0_u8; 4]), &mut [0; 2], 0);
            assert_refused(refused, "only the root passes an input");
        }
        assert!(is_unharmed(comm));
    })
    .unwrap();
}

fn a_root_that_does_not_exist_is_refused() {
    with_ranks(2, |comm| {
        let words = "the root rank does not exist";
        assert_refused(comm.reduce(&mut [0_u8; 2], ReduceOp::Sum, 2), words);
        assert_refused(comm.gather(&mut [0_u8; 2], 9), words);
        assert_refused(comm.gather_into(&[0_u8; 2], None, 2), words);
        assert_refused(comm.scatter(&mut [0_u8; 2], 2).map(drop), words);
        assert_refused(comm.scatter_into(None, &mut [0_u8; 2], 2), words);
        assert!(is_unharmed(comm));
    })
    .unwrap();
}

fn tensors_of_other_types_or_layouts_are_refused() {
    with_ranks(2, |comm| {
        let input = Tensor::zeros(DType::F32, &[2, 2]).unwrap();
        let output = || TensorMut::zeros(DType::F64, &[8]).unwrap();
        let refused = comm.all_gather_into_async(&input, output()).map(drop);
        assert_refused(refused, "the same element type");
        let strided = input.permute(&[1, 0]).unwrap();
        let output = TensorMut::zeros(DType::F32, &[8]).unwrap();
        let refused = comm.all_gather_into_async(&strided, output).map(drop);
        assert_refused(refused, "contiguous");
        let bools = TensorMut::zeros(DType::Bool, &[4]).unwrap();
        let error = comm.reduce_async(bools, ReduceOp::Max, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(is_unharmed(comm));
    })
    .unwrap();
}

fn what_is_only_moved_may_have_any_type() {
    with_ranks(3, |comm| {
        let rank = comm.rank() as u8;
        let input = Tensor::from_bytes(vec![rank % 2; 5].into(), DType::Bool, &[5]).unwrap();
        let output = TensorMut::zeros(DType::Bool, &[3, 5]).unwrap();
        let work = comm.all_gather_into_async(&input, output).unwrap();
        let gathered = work.take().unwrap();
        let expected: Vec<u8> = [[0; 5], [1; 5], [0; 5]].concat();
        assert_eq!(gathered.as_bytes().unwrap(), expected);
    })
    .unwrap();
}

fn an_averaged_block_is_the_sum_divided_once() {
    with_ranks(4, |comm| {
        let mut buffer = vec![comm.rank() as f64; 4 * 100];
        let own = comm.reduce_scatter(&mut buffer, ReduceOp::Avg).unwrap();
        assert_eq!(own, [1.5; 100]);
        let mut buffer = vec![-(comm.rank() as i32) - 1; 50_000];
        comm.reduce(&mut buffer, ReduceOp::Avg, 3).unwrap();
        // -10 / 4 truncates; the other ranks keep what they had.
        let expected = if comm.rank() == 3 {
            -2
        } else {
            -(comm.rank() as i32) - 1
        };
        assert!(buffer.iter().all(|value| *value == expected));
    })
    .unwrap();
}

fn ranks_may_mix_forms_in_place_and_out_of_place() {
    with_ranks(4, |comm| {
        let (rank, in_place) = (comm.rank(), comm.rank() % 2 == 0);
        for count in [1, 1000, 30_000] {
            let expected: Vec<u32> = (0..4).flat_map(|owner| vec![owner; count]).collect();
            let mut gathered = vec![rank; 4 * count];
            if in_place {
                comm.all_gather(&mut gathered).unwrap();
            } else {
                comm.all_gather_into(&vec![rank; count], &mut gathered)
                    .unwrap();
            }
            assert!(gathered == expected);
            // Everybody sends its rank to everybody.
            let mut exchanged = vec![rank; 4 * count];
            if in_place {
                comm.all_to_all(&mut exchanged).unwrap();
            } else {
                comm.all_to_all_into(&vec![rank; 4 * count], &mut exchanged)
                    .unwrap();
            }
            assert!(exchanged == expected);
        }
    })
    .unwrap();
}

fn the_root_of_a_scatter_keeps_its_buffer() {
    with_ranks(3, |comm| {
        for count in [2, 40_000] {
            let all: Vec<u16> = (0..3 * count).map(|index| index as u16).collect();
            let mut buffer = if comm.rank() == 2 {
                all.clone()
            } else {
                vec![0; count]
            };
            let own = comm.scatter(&mut buffer, 2).unwrap();
            let start = comm.rank() as usize * count;
            assert!(own == &all[start..start + count]);
            assert!(comm.rank() != 2 || buffer == all);
        }
    })
    .unwrap();
}

fn block_lengths_that_differ_between_ranks_are_a_mismatch_on_all() {
    let errors = with_ranks(2, |comm| {
        let count = 3 + comm.rank() as usize;
        let mut output = vec![0_u8; 2 * count];
        comm.all_gather_into(&vec![0; count], &mut output)
            .unwrap_err()
    })
    .unwrap();
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
        assert!(error.to_string().contains("all_gather"), "{error}");
    }
}

on_every_transport! {
    a_buffer_that_does_not_divide_into_blocks_is_refused,
    lengths_that_do_not_belong_together_are_refused,
    a_buffer_that_is_missing_or_not_used_is_refused,
    a_root_that_does_not_exist_is_refused,
    tensors_of_other_types_or_layouts_are_refused,
    what_is_only_moved_may_have_any_type,
    an_averaged_block_is_the_sum_divided_once,
    ranks_may_mix_forms_in_place_and_out_of_place,
    the_root_of_a_scatter_keeps_its_buffer,
    block_lengths_that_differ_between_ranks_are_a_mismatch_on_all,
}
