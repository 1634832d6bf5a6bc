//! Collectives, algorithms and protocols by name.

use std::fmt;

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$case_doc:meta])* $case:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$case_doc])* $case,)* }

        impl $name {
            /// All of them, in NCCL's order.
            pub const ALL: &'static [Self] = &[$(Self::$case,)*];

            /// The name NCCL prints.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$case => $text,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

named! {
    /// A collective operation.
    Collective {
        /// One rank's data to all.
        Broadcast = "Broadcast",
        /// All ranks' data reduced to one rank.
        Reduce = "Reduce",
        /// All ranks' data to all.
        AllGather = "AllGather",
        /// Reduced data, one share per rank.
        ReduceScatter = "ReduceScatter",
        /// Reduced data to all.
        AllReduce = "AllReduce",
    }
}

named! {
    /// How data travels between ranks.
    Algorithm {
        /// Two trees at once.
        Tree = "Tree",
        /// A ring.
        Ring = "Ring",
        /// The NVSwitch reduces.
        Nvls = "NVLS",
        /// The NVSwitch reduces inside nodes, a tree between them.
        NvlsTree = "NVLSTree",
        /// Parallel aggregated trees, for one rank per node.
        Pat = "PAT",
    }
}

named! {
    /// How data crosses one edge.
    Protocol {
        /// Flag beside every word: lowest latency.
        Ll = "LL",
        /// Flag per line.
        Ll128 = "LL128",
        /// FIFO steps: highest bandwidth.
        Simple = "Simple",
    }
}
