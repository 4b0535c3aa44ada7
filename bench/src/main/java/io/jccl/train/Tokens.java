package io.jccl.train;

import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32C;

/**
 * A text as numbers, in as few bytes each as its vocabulary needs. Written by one thread, then read
 * by any number.
 */
final class Tokens {
    private static final int BLOCK = 1 << 20;

    private final List<byte[]> blocks = new ArrayList<>();
    private final int vocabulary;
    private final int bytes;
    private int length;

    /**
     * Creates an empty text.
     *
     * @param vocabulary number of different tokens
     */
    Tokens(int vocabulary) {
        this.vocabulary = vocabulary;
        bytes = vocabulary <= 1 << Byte.SIZE ? 1 : vocabulary <= 1 << Character.SIZE ? 2 : 4;
    }

    void add(int token) {
        int at = length % BLOCK;
        if (at == 0) {
            blocks.add(new byte[BLOCK * bytes]);
        }
        byte[] block = blocks.getLast();
        for (int i = 0; i < bytes; i++) {
            block[at * bytes + i] = (byte) (token >>> (Byte.SIZE * i));
        }
        length = Math.incrementExact(length);
    }

    int get(int at) {
        byte[] block = blocks.get(at / BLOCK);
        int token = 0;
        for (int i = 0; i < bytes; i++) {
            token |= Byte.toUnsignedInt(block[at % BLOCK * bytes + i]) << (Byte.SIZE * i);
        }
        return token;
    }

    int length() {
        return length;
    }

    /** A number that other texts hardly have. */
    long checksum() {
        CRC32C sum = new CRC32C();
        int left = length;
        for (byte[] block : blocks) {
            int here = Math.min(left, BLOCK);
            sum.update(block, 0, here * bytes);
            left -= here;
        }
        return sum.getValue();
    }

    /**
     * Unigram entropy: the loss of the best model that ignores the context.
     *
     * @return nats per token
     */
    double unigramEntropy() {
        int[] counts = new int[vocabulary];
        for (int i = 0; i < length; i++) {
            counts[get(i)]++;
        }
        double entropy = 0;
        for (int c : counts) {
            if (c > 0) {
                double p = (double) c / length;
                entropy -= p * Math.log(p);
            }
        }
        return entropy;
    }
}
