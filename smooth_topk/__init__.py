"""The smooth top-k loss of Berrada, Zisserman and Kumar (ICLR 2018), exact in float32."""
