//! Values of all sorts through the encoded form and back, and bytes of all sorts into a receiver.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use comm_core::{DType, Tensor, TensorMut};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::decode::Announced;
use super::*;

/// What a transport does: the segments arrive in memory that the receiver prepared.
fn receive<T: DeserializeOwned>(sent: &Encoded) -> Result<Received<T>> {
    let bytes: Vec<_> = sent.segments.iter().map(|s| s.len_bytes() as u64).collect();
    let arrived = announced(&sent.header, &bytes)?
        .layouts
        .into_iter()
        .zip(&sent.segments)
        .map(|(layout, segment)| {
            let mut to = TensorMut::zeros(layout.dtype(), layout.shape())?;
            to.as_mut_bytes()?.copy_from_slice(segment.as_bytes()?);
            Ok(to.freeze())
        })
        .collect::<Result<Vec<_>>>()?;
    decode(sent.kind, &sent.header, arrived)
}

fn there_and_back<T: Serialize, R: DeserializeOwned>(value: &T) -> (MessageKind, R) {
    let sent = encode(value, None, false, None).unwrap();
    let received = receive(&sent).unwrap();
    assert_eq!(received.kind, sent.kind);
    (sent.kind, received.message)
}

fn tensor(values: &[f32]) -> Tensor {
    Tensor::from_slice(values, &[values.len()]).unwrap()
}

/// Any bytes as a tensor of any type, the first dimension being what is left.
fn any_tensor() -> impl Strategy<Value = Tensor> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..96);
    (0..DType::ALL.len(), 1_usize..4, bytes).prop_map(|(dtype, rows, bytes)| {
        let dtype = DType::ALL[dtype];
        let row_bytes = rows * dtype.size_bytes();
        let columns = bytes.len() / row_bytes;
        let mut tensor = TensorMut::zeros(dtype, &[columns, rows]).unwrap();
        let len = tensor.len_bytes();
        tensor
            .as_mut_bytes()
            .unwrap()
            .copy_from_slice(&bytes[..len]);
        tensor.freeze()
    })
}

/// A value of any shape, with tensors anywhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Value {
    Unit,
    Number(i64),
    Real(f64),
    Text(String),
    Tensor(Tensor),
    Maybe(Option<Box<Self>>),
    Pair(Box<Self>, Tensor),
    List(Vec<Self>),
    Tensors(Vec<Tensor>),
    Map(BTreeMap<String, Self>),
    Record { name: String, value: Box<Self> },
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Unit),
        any::<i64>().prop_map(Value::Number),
        (-1e9..1e9).prop_map(Value::Real),
        ".{0,12}".prop_map(Value::Text),
        any_tensor().prop_map(Value::Tensor),
        proptest::collection::vec(any_tensor(), 0..4).prop_map(Value::Tensors),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            proptest::option::of(inner.clone().prop_map(Box::new)).prop_map(Value::Maybe),
            (inner.clone(), any_tensor()).prop_map(|(v, t)| Value::Pair(Box::new(v), t)),
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::List),
            proptest::collection::btree_map(".{0,6}", inner.clone(), 0..4).prop_map(Value::Map),
            (".{0,6}", inner).prop_map(|(name, value)| Value::Record {
                name,
                value: Box::new(value)
            }),
        ]
    })
}

/// A text that holds everything of a value: the tensors in band.
fn text_of(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

proptest! {
    #[test]
    fn nested_values_arrive_as_they_were(value in any_value()) {
        let (_, back) = there_and_back::<_, Value>(&value);
        prop_assert_eq!(text_of(&back), text_of(&value));
    }

    #[test]
    fn lists_and_dictionaries_keep_elements_and_order(
        tensors in proptest::collection::vec((".{0,9}", any_tensor()), 0..6),
        take in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let dict: TensorDict = tensors.into_iter().collect();
        let (kind, back) = there_and_back::<_, TensorDict>(&dict);
        prop_assert_eq!(kind, MessageKind::Dict);
        prop_assert_eq!(text_of(&back), text_of(&dict));
        let tensors: Vec<_> = dict.into_iter().map(|(_, tensor)| tensor).collect();
        let list: Vec<_> = if tensors.is_empty() {
            Vec::new()
        } else {
            take.iter().map(|index| index.get(&tensors).clone()).collect()
        };
        let (kind, back) = there_and_back::<_, Vec<Tensor>>(&list);
        prop_assert_eq!(kind, MessageKind::List);
        prop_assert_eq!(text_of(&back), text_of(&list));
    }

    #[test]
    fn any_bytes_end_in_a_value_or_an_error(
        kind in 0_u8..5,
        header in proptest::collection::vec(any::<u8>(), 0..64),
        segments in proptest::collection::vec(0_u64..64, 0..4),
    ) {
        if let Ok(Announced { layouts, blocks: None, .. }) = announced(&header, &segments) {
            let arrived = layouts
                .iter()
                .map(|layout| Tensor::zeros(layout.dtype(), layout.shape()).unwrap())
                .collect();
            let _ = decode::<Value>(MessageKind::from_wire(kind).unwrap(), &header, arrived);
        }
    }

    #[test]
    fn a_damaged_message_ends_in_a_value_or_an_error(
        value in any_value(),
        place in any::<prop::sample::Index>(),
        damage in 1_u8..,
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let mut sent = encode(&value, None, false, None).unwrap();
        let mut header = sent.header.to_vec();
        let index = place.index(header.len());
        header[index] ^= damage;
        if let Some(cut) = cut {
            header.truncate(cut.index(header.len()));
        }
        sent.header = header.into();
        let bytes: Vec<_> = sent.segments.iter().map(|s| s.len_bytes() as u64).collect();
        if let Ok(Announced { blocks: None, .. }) = announced(&sent.header, &bytes) {
            let _ = receive::<Value>(&sent);
            for kind in MessageKind::ALL {
                sent.kind = kind;
                let _ = receive::<TensorDict>(&sent);
                let _ = receive::<Vec<Tensor>>(&sent);
            }
        }
    }
}

#[test]
fn containers_of_tensors_arrive_as_any_container_of_tensors() {
    #[derive(Deserialize)]
    struct Observation {
        image: Tensor,
        state: Tensor,
    }
    let (one, two) = (tensor(&[1.0]), tensor(&[2.0, 2.0]));
    let (_, list) = there_and_back::<_, Vec<Tensor>>(&(&one, &two));
    assert_eq!(list[1].as_slice::<f32>().unwrap(), [2.0, 2.0]);
    let (_, (first, _)) = there_and_back::<_, (Tensor, Tensor)>(&vec![&one, &two]);
    assert_eq!(first.as_slice::<f32>().unwrap(), [1.0]);
    let dict = BTreeMap::from([("image", &one), ("state", &two), ("unused", &two)]);
    let (kind, map) = there_and_back::<_, HashMap<String, Tensor>>(&dict);
    assert_eq!((kind, map.len()), (MessageKind::Dict, 3));
    let (_, observation) = there_and_back::<_, Observation>(&dict);
    assert_eq!(observation.image.shape(), [1]);
    assert_eq!(observation.state.shape(), [2]);
}

#[test]
fn another_container_is_a_mismatch_that_names_kind_and_type() {
    let one = tensor(&[1.0]);
    let sent = encode(&one, None, false, None).unwrap();
    for error in [
        receive::<u32>(&sent).unwrap_err(),
        receive::<Vec<Tensor>>(&sent).unwrap_err(),
        receive::<String>(&sent).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        assert!(error.to_string().contains("kind tensor"), "{error}");
    }
    let sent = encode(&vec![&one, &one, &one], None, false, None).unwrap();
    assert!(receive::<(Tensor, Tensor)>(&sent).is_err());
    assert!(receive::<TensorDict>(&sent).is_err());
    let sent = encode(&(1_u8, "longer"), None, false, None).unwrap();
    let error = receive::<u8>(&sent).unwrap_err();
    assert!(error.to_string().contains("7 bytes longer"), "{error}");
}

#[test]
fn aliases_travel_once_and_arrive_as_one_tensor() {
    #[derive(Serialize, Deserialize)]
    struct Tied {
        embedding: Tensor,
        layers: Vec<(String, Tensor)>,
        head: Option<Tensor>,
    }
    let embedding = tensor(&[0.5; 64]);
    let tied = Tied {
        layers: vec![("tied".to_owned(), embedding.clone())],
        head: Some(embedding.clone()),
        embedding,
    };
    let sent = encode(&tied, None, false, None).unwrap();
    assert_eq!(
        (sent.kind, sent.segments.len()),
        (MessageKind::Structure, 1)
    );
    assert!(Arc::ptr_eq(
        sent.segments[0].storage(),
        tied.embedding.storage()
    ));
    let back = receive::<Tied>(&sent).unwrap().message;
    let head = back.head.unwrap();
    assert!(Arc::ptr_eq(back.embedding.storage(), head.storage()));
    assert!(Arc::ptr_eq(head.storage(), back.layers[0].1.storage()));
}

#[test]
fn no_piggyback_and_a_piggyback_of_nothing_are_told_apart() {
    let value = ("message", 3);
    let received = |piggyback: Option<&Piggyback>| {
        let sent = encode(&value, piggyback, false, None).unwrap();
        let received = receive::<(String, i32)>(&sent).unwrap();
        assert_eq!(received.message, ("message".to_owned(), 3));
        received.piggyback
    };
    assert_eq!(received(None), None);
    let nothing = Piggyback::new(&None::<u32>).unwrap();
    let back = received(Some(&nothing)).unwrap();
    assert_eq!(back.get::<Option<u32>>().unwrap(), None);
    let unit = received(Some(&Piggyback::new(&()).unwrap())).unwrap();
    unit.get::<()>().unwrap();
    assert_eq!(
        unit.get::<String>().unwrap_err().kind(),
        ErrorKind::Mismatch
    );
    let error = Piggyback::new(&vec![0_u8; MAX_PIGGYBACK_BYTES]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_tensor_with_gaps_at_any_depth_is_refused_or_packed() {
    let turned = Tensor::from_vec(vec![1_i32, 2, 3, 4], &[2, 2])
        .unwrap()
        .permute(&[1, 0])
        .unwrap();
    let nested = BTreeMap::from([("a", vec![("b", Some(&turned))])]);
    let error = encode(&nested, None, false, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let text = error.to_string();
    assert!(
        text.contains("must be contiguous when using P2P communication"),
        "{text}"
    );
    assert!(text.contains("pack()"), "{text}");
    let sent = encode(&nested, None, true, None).unwrap();
    let back = receive::<BTreeMap<String, Vec<(String, Option<Tensor>)>>>(&sent).unwrap();
    let tensor = back.message["a"][0].1.clone().unwrap();
    assert_eq!(tensor.as_slice::<i32>().unwrap(), [1, 3, 2, 4]);
}

#[test]
fn a_large_body_is_a_segment_of_its_own() {
    let value = (vec![7_u8; 1 << 20], tensor(&[1.0]));
    let sent = encode(&value, None, false, None).unwrap();
    assert_eq!(sent.segments.len(), 2);
    assert!(sent.header.len() < 64);
    let (_, (bytes, _)) = there_and_back::<_, (Vec<u8>, Tensor)>(&value);
    assert_eq!(bytes, value.0);
    let bytes = [sent.segments[0].len_bytes() as u64];
    assert!(
        announced(&sent.header, &bytes).is_err(),
        "the body is missing"
    );
}

#[test]
fn a_small_message_has_a_small_header() {
    let sent = encode(&[0_u64; 8], None, false, None).unwrap();
    assert!(sent.segments.is_empty() && sent.header.len() <= 12);
    let sent = encode(&tensor(&[1.0; 16]), None, false, None).unwrap();
    assert!(sent.header.len() <= 8, "{}", sent.header.len());
}

#[test]
fn what_has_no_binary_form_is_refused_at_the_call() {
    #[derive(Serialize)]
    struct Flattened {
        #[serde(flatten)]
        inner: BTreeMap<String, u8>,
    }
    let value = Flattened {
        inner: BTreeMap::from([("a".to_owned(), 1)]),
    };
    let error = encode(&value, None, false, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("flatten"), "{error}");
}
