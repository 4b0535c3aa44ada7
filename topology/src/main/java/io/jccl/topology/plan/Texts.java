package io.jccl.topology.plan;

import java.util.List;
import java.util.Locale;

/** Sentences about plans. */
final class Texts {
    private Texts() {}

    /** Up to two decimals, without trailing zeros. */
    static String number(double value) {
        double rounded = Math.rint(value * 100) / 100;
        return rounded == Math.rint(rounded)
                ? Long.toString((long) rounded)
                : String.valueOf(rounded);
    }

    /** {@code 6 rings of 20 GB/s}. */
    static String channels(List<Channel> channels) {
        double least = Double.POSITIVE_INFINITY;
        double most = 0;
        for (Channel channel : channels) {
            least = Math.min(least, channel.gbps());
            most = Math.max(most, channel.gbps());
        }
        String kind =
                switch (channels.getFirst()) {
                    case Channel.Ring ring -> "ring";
                    case Channel.Tree tree -> "tree";
                    case Channel.Exchange exchange -> "exchange";
                };
        int count = channels.size();
        return (count == 1 ? "one " + kind : count + " " + kind + "s")
                + " of "
                + (number(least).equals(number(most)) ? "" : number(least) + " to ")
                + number(most)
                + " GB/s";
    }

    /** The same at the start of a sentence. */
    static String capital(String text) {
        return text.substring(0, 1).toUpperCase(Locale.ROOT) + text.substring(1);
    }
}
