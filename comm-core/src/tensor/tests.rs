//! The contract clauses of the module, then random chains of views against a plain model.

use std::ptr::NonNull;
use std::sync::Arc;

use ::bytes::Bytes;
use half::bf16;
use proptest::prelude::*;

use super::*;
use crate::{DType, ErrorKind, MemoryKind, Result};

fn counted(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    Tensor::from_vec((0..count as u32).collect(), shape).unwrap()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, part: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains(part), "{error}");
}

/// Memory of a device: the address is not to be touched.
#[derive(Debug)]
struct DeviceStorage(usize);

// SAFETY: the memory is not host memory, so nobody dereferences the address.
unsafe impl Storage for DeviceStorage {
    fn as_ptr(&self) -> NonNull<u8> {
        NonNull::<u128>::dangling().cast()
    }

    fn len_bytes(&self) -> usize {
        self.0
    }

    fn memory_kind(&self) -> MemoryKind {
        MemoryKind::Device { ordinal: 1 }
    }

    fn is_writable(&self) -> bool {
        true
    }
}

#[test]
fn a_vector_becomes_a_tensor_of_one_dimension_where_it_is() {
    let vec = vec![1_u32, 2, 3];
    let address = vec.as_ptr();
    let mut tensor = TensorMut::from(vec);
    tensor.as_mut_slice::<u32>().unwrap()[0] = 7;
    let tensor = tensor.freeze();
    assert_eq!(tensor.shape(), [3]);
    assert_eq!(tensor.as_slice::<u32>().unwrap(), [7, 2, 3]);
    assert_eq!(tensor.as_ptr(), address.cast());
    assert_eq!(Tensor::from(Vec::<f64>::new()).shape(), [0]);
}

#[test]
fn tensors_cross_threads() {
    fn send_sync<X: Send + Sync>() {}
    send_sync::<Tensor>();
    send_sync::<TensorMut>();
    send_sync::<TensorLayout>();
}

#[test]
fn from_vec_and_views_copy_nothing() {
    let vec: Vec<u32> = (0..12).collect();
    let address = vec.as_ptr().cast::<u8>();
    let tensor = Tensor::from_vec(vec, &[3, 4]).unwrap();
    assert_eq!(tensor.as_ptr(), address);
    assert_eq!(tensor.clone().as_ptr(), address);
    let row = tensor.slice(2..3).unwrap();
    assert_eq!(row.as_ptr(), address.wrapping_add(32));
    assert_eq!(row.shape(), [1, 4]);
    assert_eq!(row.as_slice::<u32>().unwrap(), [8, 9, 10, 11]);
    assert!(Arc::ptr_eq(row.storage(), tensor.storage()));
}

#[test]
fn a_vector_with_spare_capacity_is_given_back_whole() {
    let mut vec = Vec::with_capacity(100);
    vec.extend([1_u16, 2, 3]);
    let tensor = Tensor::from_vec(vec, &[3]).unwrap();
    assert_eq!(tensor.as_slice::<u16>().unwrap(), [1, 2, 3]);
}

#[test]
fn data_that_does_not_fill_the_shape_is_refused() {
    refused(Tensor::from_vec(vec![1_u8; 5], &[2, 3]), "fill the shape");
    refused(Tensor::from_slice(&[1_u8; 7], &[2, 3]), "fill the shape");
    refused(
        Tensor::from_bytes(Bytes::from_static(&[0; 7]), DType::U8, &[2, 3]),
        "fill the shape",
    );
}

#[test]
fn sizes_that_overflow_are_refused() {
    for shape in [
        &[usize::MAX, 2][..],
        &[usize::MAX / 2, 1],
        &[0, usize::MAX, 2],
        &[1 << 62, 4],
    ] {
        refused(Tensor::zeros(DType::Complex128, shape), "address space");
    }
    refused(
        TensorLayout::strided(DType::U8, &[3], &[usize::MAX / 2], 0),
        "address space",
    );
    refused(
        TensorLayout::strided(DType::F32, &[1], &[1], usize::MAX),
        "address space",
    );
    refused(
        TensorLayout::strided(DType::F32, &[1, 2], &[1], 0),
        "one stride for each",
    );
}

#[test]
fn no_dimension_is_one_element_and_a_zero_is_none() {
    let scalar = Tensor::from_vec(vec![2.5_f64], &[]).unwrap();
    assert_eq!((scalar.element_count(), scalar.len_bytes()), (1, 8));
    assert!(scalar.is_contiguous());
    assert_eq!(
        scalar.reshape(&[1, 1]).unwrap().as_slice::<f64>().unwrap(),
        [2.5]
    );
    refused(scalar.slice(0..1), "inside the tensor");

    let mut empty = TensorMut::zeros(DType::F32, &[3, 0]).unwrap();
    assert_eq!((empty.element_count(), empty.len_bytes()), (0, 0));
    assert!(empty.as_mut_slice::<f32>().unwrap().is_empty());
    assert!(empty.as_mut_bytes().unwrap().is_empty());
    let empty = empty.freeze();
    assert!(empty.is_contiguous());
    assert_eq!(empty.slice(1..3).unwrap().shape(), [2, 0]);
    assert!(
        empty
            .permute(&[1, 0])
            .unwrap()
            .pack()
            .unwrap()
            .as_bytes()
            .unwrap()
            .is_empty()
    );
    let bytes = Tensor::from_bytes(Bytes::new(), DType::F64, &[0]).unwrap();
    assert!(bytes.as_slice::<f64>().unwrap().is_empty());
    assert!(bytes.reshape(&[0, 7]).is_ok());
}

#[test]
fn zeros_are_zero_and_aligned_to_a_cache_line() {
    for count in [0, 1, 3, 1000] {
        let tensor = Tensor::zeros(DType::I8, &[count]).unwrap();
        assert!(tensor.as_ptr().addr().is_multiple_of(64));
        assert!(tensor.as_bytes().unwrap().iter().all(|byte| *byte == 0));
    }
}

#[test]
fn all_element_types_can_be_held_and_viewed() {
    for dtype in DType::ALL {
        let mut tensor = TensorMut::zeros(dtype, &[3, 5]).unwrap();
        assert_eq!(tensor.len_bytes(), 15 * dtype.size_bytes());
        for (index, byte) in tensor.as_mut_bytes().unwrap().iter_mut().enumerate() {
            *byte = index as u8;
        }
        let tensor = tensor.freeze();
        let turned = tensor.permute(&[1, 0]).unwrap().pack().unwrap();
        let back = turned.permute(&[1, 0]).unwrap().pack().unwrap();
        assert_eq!(
            back.as_bytes().unwrap(),
            tensor.as_bytes().unwrap(),
            "{dtype}"
        );
    }
}

#[test]
fn bytes_are_shared_when_aligned_and_refused_otherwise() {
    let words = vec![0x0102_0304_u32.to_le(); 4];
    let backing = Tensor::from_vec(words, &[4]).unwrap();
    let bytes = Bytes::copy_from_slice(backing.as_bytes().unwrap());
    let start = bytes.as_ptr().align_offset(4);
    let aligned = bytes.slice(start..start + 8);
    let address = aligned.as_ptr();
    let tensor = Tensor::from_bytes(aligned, DType::U32, &[2]).unwrap();
    assert_eq!(tensor.as_ptr(), address);
    let odd = bytes.slice(start + 1..start + 9);
    refused(
        Tensor::from_bytes(odd.clone(), DType::U32, &[2]),
        "not aligned",
    );
    assert!(Tensor::from_bytes(odd, DType::Bool, &[8]).is_ok());
}

#[test]
fn typed_access_checks_type_contiguity_and_memory() {
    let tensor = counted(&[2, 3]);
    refused(tensor.as_slice::<i32>(), "another type");
    refused(tensor.permute(&[1, 0]).unwrap().as_slice::<u32>(), "pack()");
    refused(
        tensor.permute(&[1, 0]).unwrap().as_bytes(),
        "must be contiguous",
    );
    let layout = TensorLayout::contiguous(DType::F32, &[2, 2]).unwrap();
    let mut device = TensorMut::from_storage(Arc::new(DeviceStorage(16)), layout).unwrap();
    refused(device.as_mut_slice::<f32>(), "copy the tensor to the host");
    refused(device.as_mut_bytes(), "device 1");
    let device = device.freeze();
    refused(device.as_bytes(), "device 1");
    let packed = device.permute(&[1, 0]).unwrap().pack().unwrap_err();
    assert_eq!(packed.kind(), ErrorKind::Unsupported);
    assert!(device.try_into_mut().is_err());
}

#[test]
fn a_tensor_never_reaches_beyond_its_storage() {
    let storage = || Arc::new(DeviceStorage(40));
    let layout = |shape: &[usize], strides: &[usize], offset| {
        TensorLayout::strided(DType::F32, shape, strides, offset).unwrap()
    };
    assert!(Tensor::from_storage(storage(), layout(&[2, 3], &[4, 2], 1)).is_ok());
    refused(
        Tensor::from_storage(storage(), layout(&[2, 3], &[4, 2], 2)),
        "beyond the end",
    );
    refused(
        Tensor::from_storage(storage(), layout(&[11], &[1], 0)),
        "beyond the end",
    );
    refused(
        Tensor::from_storage(storage(), layout(&[0], &[1], 11)),
        "beyond the end",
    );
    assert!(Tensor::from_storage(storage(), layout(&[1000], &[0], 9)).is_ok());
}

#[test]
fn a_writable_tensor_is_the_only_owner_of_its_elements() {
    let tensor = counted(&[4]);
    let other = tensor.clone();
    let tensor = tensor.try_into_mut().unwrap_err();
    drop(other);
    let mut tensor = tensor.try_into_mut().unwrap();
    tensor.as_mut_slice::<u32>().unwrap()[0] = 9;
    assert_eq!(tensor.freeze().as_slice::<u32>().unwrap(), [9, 1, 2, 3]);

    let bytes = Tensor::from_bytes(Bytes::from_static(b"read only"), DType::U8, &[9]).unwrap();
    assert!(bytes.try_into_mut().is_err());
    let repeated = TensorLayout::strided(DType::U8, &[2, 4], &[0, 1], 0).unwrap();
    refused(
        TensorMut::from_storage(Arc::new(DeviceStorage(8)), repeated),
        "no element twice",
    );
    let shared: Arc<dyn Storage> = Arc::new(DeviceStorage(8));
    let layout = TensorLayout::contiguous(DType::U8, &[8]).unwrap();
    refused(
        TensorMut::from_storage(Arc::clone(&shared), layout),
        "owners=2",
    );
}

#[test]
fn a_narrowed_writable_tensor_writes_its_part_only() {
    let mut tensor = TensorMut::from_vec(vec![bf16::ZERO; 6], &[6]).unwrap();
    refused(tensor.narrow(0, 4, 3), "inside the tensor");
    refused(tensor.reshape(&[4]), "number of elements");
    tensor.reshape(&[3, 2]).unwrap();
    tensor.narrow(0, 1, 1).unwrap();
    tensor.as_mut_slice::<bf16>().unwrap().fill(bf16::ONE);
    assert_eq!(tensor.shape(), [1, 2]);
    assert_eq!(tensor.freeze().to_vec::<bf16>().unwrap(), [bf16::ONE; 2]);
}

#[test]
fn views_that_do_not_exist_are_refused() {
    let tensor = counted(&[2, 3]);
    refused(tensor.narrow(2, 0, 1), "inside the tensor");
    refused(tensor.narrow(1, usize::MAX, 2), "inside the tensor");
    refused(tensor.slice(1..3), "inside the tensor");
    refused(tensor.permute(&[0]), "each axis once");
    refused(tensor.permute(&[0, 0]), "each axis once");
    refused(tensor.permute(&[0, 2]), "each axis once");
    refused(tensor.reshape(&[7]), "number of elements");
    refused(
        tensor.permute(&[1, 0]).unwrap().reshape(&[6]),
        "must be contiguous",
    );
}

#[test]
fn packing_a_contiguous_tensor_shares_it() {
    let tensor = counted(&[4, 2]);
    let part = tensor.slice(1..3).unwrap();
    assert_eq!(part.pack().unwrap().as_ptr(), part.as_ptr());
}

#[test]
fn more_dimensions_than_fit_inline_work() {
    let tensor = counted(&[1, 2, 1, 2, 1, 2, 1, 2]);
    let turned = tensor
        .permute(&[7, 6, 5, 4, 3, 2, 1, 0])
        .unwrap()
        .pack()
        .unwrap();
    assert_eq!(&turned.as_slice::<u32>().unwrap()[..4], [0, 8, 4, 12]);
}

/// A tensor as a list of (index, value), in row-major order.
#[derive(Clone, Debug)]
struct Model {
    shape: Vec<usize>,
    values: Vec<u32>,
}

impl Model {
    fn indices(&self) -> Vec<Vec<usize>> {
        let mut indices = vec![vec![]];
        for &size in &self.shape {
            indices = indices
                .into_iter()
                .flat_map(|index| (0..size).map(move |i| [&index[..], &[i]].concat()))
                .collect();
        }
        indices
    }

    fn narrow(&self, axis: usize, start: usize, len: usize) -> Self {
        let kept = self.indices().into_iter().zip(&self.values);
        let kept = kept.filter(|(index, _)| (start..start + len).contains(&index[axis]));
        let mut shape = self.shape.clone();
        shape[axis] = len;
        Self {
            shape,
            values: kept.map(|(_, value)| *value).collect(),
        }
    }

    fn permute(&self, axes: &[usize]) -> Self {
        let mut moved: Vec<_> = self
            .indices()
            .into_iter()
            .zip(&self.values)
            .map(|(index, value)| {
                (
                    axes.iter().map(|&axis| index[axis]).collect::<Vec<_>>(),
                    *value,
                )
            })
            .collect();
        moved.sort();
        Self {
            shape: axes.iter().map(|&axis| self.shape[axis]).collect(),
            values: moved.into_iter().map(|(_, value)| value).collect(),
        }
    }
}

proptest! {
    #[test]
    fn any_chain_of_views_shows_the_elements_of_the_model(
        shape in prop::collection::vec(0_usize..5, 1..5),
        steps in prop::collection::vec((any::<bool>(), any::<[prop::sample::Index; 3]>()), 0..6),
        order in Just([0_usize, 1, 2, 3, 4]).prop_shuffle(),
    ) {
        let mut tensor = counted(&shape);
        let values = (0..tensor.element_count() as u32).collect();
        let mut model = Model { shape, values };
        for (narrow, [axis, start, len]) in steps {
            let ndim = model.shape.len();
            if narrow {
                let axis = axis.index(ndim);
                let start = start.index(model.shape[axis] + 1);
                let len = len.index(model.shape[axis] - start + 1);
                tensor = tensor.narrow(axis, start, len).unwrap();
                model = model.narrow(axis, start, len);
            } else {
                let axes: Vec<_> = order.iter().copied().filter(|axis| *axis < ndim).collect();
                tensor = tensor.permute(&axes).unwrap();
                model = model.permute(&axes);
            }
            let layout = tensor.layout();
            prop_assert!(layout.end_bytes() <= tensor.storage().len_bytes());
            prop_assert!(layout.is_free_of_overlap());
        }
        prop_assert_eq!(tensor.shape(), &model.shape[..]);
        let packed = tensor.pack().unwrap();
        prop_assert!(packed.is_contiguous());
        prop_assert_eq!(packed.as_slice::<u32>().unwrap(), &model.values[..]);
        if tensor.is_contiguous() {
            prop_assert_eq!(tensor.as_slice::<u32>().unwrap(), &model.values[..]);
        } else {
            prop_assert!(tensor.as_slice::<u32>().is_err());
        }
        let flat = packed.reshape(&[model.values.len()]).unwrap();
        prop_assert_eq!(flat.to_vec::<u32>().unwrap(), model.values);
    }

    #[test]
    fn overlap_is_never_missed(
        axes in prop::collection::vec((1_usize..4, 0_usize..12), 0..4),
    ) {
        let (shape, strides): (Vec<_>, Vec<_>) = axes.into_iter().unzip();
        let layout = TensorLayout::strided(DType::U8, &shape, &strides, 0).unwrap();
        let model = Model { shape, values: vec![] };
        let mut offsets: Vec<usize> = model
            .indices()
            .iter()
            .map(|index| index.iter().zip(&strides).map(|(i, s)| i * s).sum())
            .collect();
        offsets.sort_unstable();
        prop_assert_eq!(layout.end_bytes(), offsets.last().unwrap() + 1);
        let unique = offsets.windows(2).all(|pair| pair[0] != pair[1]);
        prop_assert!(unique || !layout.is_free_of_overlap());
    }
}
